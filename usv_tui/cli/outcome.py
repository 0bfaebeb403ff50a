"""What remains of a run: its data, its table, the way back to them, and its exit code."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from usv_tui import plain
from usv_tui.cli import script
from usv_tui.cli.voice import put, say, terminal_width, to_stdout
from usv_tui.errors import ExitCode, UsageError, one_line

if TYPE_CHECKING:
    from usv_tui.session.controller import LiveSession
    from usv_tui.session.journal import Journal
    from usv_tui.session.script_output import ScriptOutput
    from usv_tui.session.snapshot import Snapshot


def data_of(args: argparse.Namespace) -> dict[str, str | None]:
    """Where the data of a run go, by kind."""
    return {"json": args.json, "csv": args.csv, "json-lines": args.json_lines}


class Outcome:
    """Tells how a run ended; never waits for a worker that hangs."""

    def __init__(
        self,
        args: argparse.Namespace,
        session: "LiveSession | None",
        journal: "Journal | None",
        output: "ScriptOutput | None",
    ) -> None:
        """`output` is what a script wrote to its standard output."""
        self._args, self._session = args, session
        self._journal, self._output = journal, output
        self._is_data_on_stdout = "-" in data_of(args).values()

    def tell(self, signal_number: int, *, is_told: bool) -> int:
        """Data, table and the way back to them; returns the exit code.

        `is_told` when stderr has had all warnings already; else they are said where no table is.
        """
        from usv_tui.cli import headless as front

        session = self._session
        if session is None:
            return 128 + signal_number if signal_number else int(ExitCode.WORKER_LOST)
        try:
            snapshot = session.final_snapshot()
        except Exception as error:  # noqa: BLE001  a fault of ours must not be the last word
            return self._say_no_result(error)
        code = front.exit_code(session, signal_number)
        versions = getattr(self._args, "versions", None)
        if versions is not None:
            code = versions.judge(snapshot, code)
        self._give_output(session)
        code = self._give_results(session, snapshot, code)
        if not is_told and (self._is_data_on_stdout or not session.has_samples):
            self._say_facts(snapshot)
        self._say_faults(session)
        self._say_where_it_is(session, code)
        self._say_not_timed(session)
        return code

    def _give_output(self, session: "LiveSession") -> None:
        """What a script wrote, where stdout is not for data."""
        output = self._output
        if output is None or output.is_empty or self._is_data_on_stdout:
            return
        to_stdout(lambda _: output.copy_to(sys.stdout.buffer))
        if session.has_samples:
            put("")

    def _give_results(self, session: "LiveSession", snapshot: "Snapshot", code: int) -> int:
        """The table and the data; one that cannot be had does not take the others with it."""
        for kind, target in (("table", "-"), *data_of(self._args).items()):
            try:
                self._give(session, snapshot, kind, target)
            except UsageError as error:
                say(f"usv-tui: {error}")
                code = code or int(error.exit_code)
            except Exception as error:  # noqa: BLE001  the other results can still be had
                failed = self._say_no_result(error, kind)
                code = code or failed
        return code

    def _give(
        self, session: "LiveSession", snapshot: "Snapshot", kind: str, target: str | None
    ) -> None:
        from usv_tui.session import export

        if target not in (None, "-"):
            export.write_file(Path(target), session.store, snapshot, kind)
        elif kind == "table":
            if session.has_samples and not self._is_data_on_stdout:
                self._put_table(session, snapshot)
        elif target == "-":
            to_stdout(partial(export.write, kind, session.store, snapshot))

    def _put_table(self, session: "LiveSession", snapshot: "Snapshot") -> None:
        from usv_tui.report import table
        from usv_tui.session import export

        markdown = self._args.markdown
        put(table.render(snapshot, markdown=markdown, width=terminal_width()))
        found = export.sweep_text(session.store, markdown=markdown)
        if found:
            put(f"\n(the table above holds for the last clock alone)\n\n{found}")
        elif session.sweep is not None:
            put("\nclock sweep: no clock was visited to its end")

    def _say_facts(self, snapshot: "Snapshot") -> None:
        from usv_tui.report import table

        for label, text in table.told_facts(snapshot, without=("fault",)):
            say(f"usv-tui: {label}: {plain.line(text)}")

    def _say_faults(self, session: "LiveSession") -> None:
        fault = session.fault
        if fault is not None:
            say(f"usv-tui: {fault.message}" + (f" ({fault.hint})" if fault.hint else ""))
            if fault.traceback:
                say(fault.traceback)
        if session.desk is not None and session.desk.failure:
            say(f"usv-tui: CLOCKS NOT GIVEN BACK: {session.desk.failure}")

    def _say_where_it_is(self, session: "LiveSession", code: int) -> None:
        journal = self._journal
        if session.journal_failure:
            say(f"usv-tui: {session.journal_failure}")
        elif journal is not None:
            mistake = session.fault is not None and code in (ExitCode.USAGE, ExitCode.NO_DEVICE)
            if mistake and not session.has_samples and self._args.save is None:
                # The user's own mistake, and nothing was timed: there is nothing to keep.
                journal.path.unlink(missing_ok=True)
            else:
                say(f"session saved: {self._args.save or journal.path}")

    def _say_not_timed(self, session: "LiveSession") -> None:
        if session.fault is not None:
            return
        from usv_tui.session import views

        store = session.store
        for item in store.refused:
            say(f"usv-tui: not timed: {plain.name(item.name)}: {plain.line(item.reason)}")
        if not session.has_samples:
            hint = script.misplaced(self._args)
            say(f"usv-tui: nothing was timed{views.where_it_stands(store)}{hint}")
        elif store.unsampled:
            why = store.course.stop_reason or "the run was ended"
            say(f"usv-tui: not timed: {', '.join(store.unsampled)} ({why})")

    def _say_no_result(self, error: Exception, kind: str = "result") -> int:
        """A fault of our own at the very end; what was measured is in the file."""
        from usv_tui.session.faults import place_of

        where = f"at {place_of(error)}: {one_line(error)}"
        kept = "" if self._journal is None else f" (the samples are in {self._journal.path})"
        say(f"usv-tui: no {kind}: a fault of usv-tui's own {where}{kept}")
        return int(ExitCode.WORKER_LOST)


def leave_at_once(code: int) -> None:
    """A call that hangs holds the worker's thread: leave without waiting for it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
