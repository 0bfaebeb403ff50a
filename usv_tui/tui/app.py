"""The screen's process: terminal, event loop, frames behind the gate, and every way out.

The first frame is painted before numpy is imported; then one tick a few times a second takes in
what is new and paints it, all of it while the gate is open.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from textual import events
from textual.app import App, ComposeResult
from textual.strip import Strip

from usv_tui import plain
from usv_tui import signals as ours
from usv_tui.errors import UsvError
from usv_tui.signals import Signals
from usv_tui.timesource import NS_PER_S, MonotonicTime, TimeSource
from usv_tui.tui import picture, text
from usv_tui.tui.canvas import Canvas, Stage
from usv_tui.tui.driver import Hangup, TtyDriver, wait_for_foreground
from usv_tui.tui.look import DEFAULT_THEME, Look, make_look, wants_ascii
from usv_tui.tui.taken import taken

if TYPE_CHECKING:  # numpy behind them must not be imported before the first paint
    from usv_tui.session.shown import ShownSession
    from usv_tui.tui.presenter import Presenter

DEFAULT_FPS = 4.0
MOST_FPS = 10.0
BLURRED_S = 1.0
"""Time between frames while the terminal has not the focus, and at most at all."""
BUDGET = 50
"""Frames are at least so many times their own CPU time apart: 2 % of a core."""
GATE_NS = 250_000_000
"""After so long a frame is painted without the gate, so that keys live in a long kernel."""
DRAIN_S = 0.03
"""How long a frame waits for the terminal to take it."""
KEY_PERIOD_S = 0.03
"""Frames for keys are at least so far apart: a held key must not fill the run with frames."""


class ScreenEnd(NamedTuple):
    """How the screen ended."""

    reason: str
    """quit, interrupt, terminated, hangup, ended or the name of another signal."""
    exit_code: int
    """0, or 128 + the signal."""


_QUIT = ScreenEnd("quit", 0)
_ENDED = ScreenEnd("ended", 0)
_WORDS = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hangup",
}


def _ended_by(number: int) -> ScreenEnd:
    word = _WORDS.get(signal.Signals(number)) or signal.Signals(number).name
    return ScreenEnd(word, 128 + number)


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """How to show, as opposed to what to measure."""

    title: str = ""
    """The benchmark file; the first frame says its name."""
    fps: float = DEFAULT_FPS
    ascii_only: bool | None = None
    """None asks the environment."""
    theme: str = DEFAULT_THEME
    """A theme of Textual's; `ansi-dark` and `ansi-light` use the terminal's own colours."""
    mouse: bool = False
    close_at_end: bool = False
    """Leave when the session has ended, instead of showing its end."""
    screenshots: Path = Path()
    """Where screenshots go."""
    ticks: bool = True
    """False: frames come only when asked for."""


def run_screen(
    connect: "Callable[[], ShownSession]",
    options: ScreenOptions | None = None,
    time_source: TimeSource | None = None,
    signals: Signals | None = None,
) -> ScreenEnd:
    """Show a session until its end; the terminal is as before on every way out.

    Args:
        connect: makes the session; called right after the first paint, in this thread.
        options: how to show it.
        time_source: the session's clock.
        signals: who handles the signals that end a run, when somebody does already.

    Raises:
        OSError: there is no terminal.
        UsvError: what `connect` raised.
    """
    options = options or ScreenOptions()
    app = UsvApp(connect, options, time_source)
    # Before the loop, which would handle Ctrl-C in its own way, and in forked children as well.
    with nullcontext(signals) if signals is not None else Signals().watch() as watched:
        watched.on_end = app.end_by
        try:
            end = app.run(mouse=options.mouse)
        finally:
            watched.on_end = None
            taken.give_back()
    if app.failure is not None:
        raise app.failure
    return end or _QUIT


class UsvApp(App[ScreenEnd], inherit_bindings=False):
    """The Textual side: one widget, one screen, no bindings, no animation, no pop-ups."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(
        self,
        connect: "Callable[[], ShownSession]",
        options: ScreenOptions | None = None,
        time_source: TimeSource | None = None,
    ) -> None:
        self.options = options or ScreenOptions()
        is_ansi = self.options.theme.startswith("ansi") or "NO_COLOR" in os.environ
        super().__init__(driver_class=TtyDriver, ansi_color=is_ansi)
        self.title = "usv-tui"
        self.animation_level = "none"
        self._disable_tooltips = True
        self._disable_notifications = True
        self.theme = self.options.theme
        self.look = self._make_look(is_ansi=is_ansi)
        self.canvas = Canvas(self._first_line, self.look.base)
        self.presenter: Presenter | None = None
        self.failure: BaseException | None = None
        """What ended the screen, when that was an error."""
        self.frames = 0
        self.frame_cpu_ns = 0
        """CPU time of the last frame."""
        self._connect = connect
        self._controller: ShownSession | None = None
        self._time = time_source or MonotonicTime()
        self._is_blurred = False
        self._must_forget = False
        self._key_frame: asyncio.TimerHandle | None = None
        self._tick_handle: asyncio.TimerHandle | None = None
        self._painted_s = 0.0
        self._told_title = ""
        """What the terminal's title was set to."""
        self._cpu_shares = _Share()
        self._our_loop: asyncio.AbstractEventLoop | None = None
        self._signalled: ScreenEnd | None = None

    @property
    def bytes_written(self) -> int:
        """What the terminal has taken so far."""
        return self._driver.bytes_written if isinstance(self._driver, TtyDriver) else 0

    # -- beginning

    def get_default_screen(self) -> Stage:
        """The one screen."""
        return Stage()

    def compose(self) -> ComposeResult:
        """The one widget."""
        yield self.canvas

    def _make_look(self, *, is_ansi: bool) -> Look:
        ascii_only = self.options.ascii_only
        return make_look(
            self.get_css_variables(),
            is_ansi=is_ansi,
            is_dark=self.current_theme.dark,
            ascii_only=wants_ascii() if ascii_only is None else ascii_only,
            no_color=self.no_color,
        )

    def _first_line(self, width: int) -> Strip:
        """The header before anything is known."""
        words = f" usv-tui  {self.look.text(PurePath(self.options.title).name)}  starting"
        return text.strip(
            [(words + self.look.glyphs.ellipsis, self.look.bar)], width, self.look.bar
        )

    def on_load(self) -> None:
        """Leave the standard streams as the caller set them: they belong to the user's code."""
        self._capture_stdout = sys.stdout  # type: ignore[assignment]
        self._capture_stderr = sys.stderr  # type: ignore[assignment]

    def on_mount(self) -> None:
        """From now on a signal reaches the loop."""
        self._our_loop = asyncio.get_running_loop()
        if self._signalled is not None:
            self.exit(self._signalled)
        if isinstance(self._driver, TtyDriver):
            self._handle_stops()

    def _handle_stops(self) -> None:
        """The terminal is the shell's while the program is stopped."""
        for number, deed in ((signal.SIGTSTP, self._suspend), (signal.SIGCONT, self._go_on)):
            ours.take([number], partial(self._from_handler, deed))

    def _from_handler(self, deed: Callable[[], None], *_: object) -> None:
        if self._our_loop is not None and not self._our_loop.is_closed():
            self._our_loop.call_soon_threadsafe(deed)

    def end_by(self, number: int) -> None:
        """A signal ends the screen; called from its handler."""
        self._signalled = _ended_by(number)
        self._from_handler(partial(self.exit, self._signalled))

    def on_ready(self) -> None:
        """The skeleton is on the screen: now the heavy things."""
        if isinstance(self._driver, TtyDriver):
            self._driver.finish(DRAIN_S)
            taken.keep()
        self.call_later(self._begin)

    def _begin(self) -> None:
        """Make the session and paint its first frame."""
        from usv_tui.tui.presenter import Presenter  # noqa: PLC0415  imports numpy

        try:
            self._controller = self._connect()
        except UsvError as error:
            self.failure = error
            self.exit(ScreenEnd("refused", int(error.exit_code)))
            return
        self.presenter = Presenter(self._controller, self.look)
        self.frame()
        gc.collect()
        gc.freeze()
        if self.options.ticks:
            self._plan_tick()

    # -- frames

    def _plan_tick(self) -> None:
        wanted_s = 1 / min(max(self.options.fps, 0.1), MOST_FPS)
        if self._is_blurred:
            wanted_s = max(wanted_s, BLURRED_S)
        affordable_s = min(BUDGET * self.frame_cpu_ns / NS_PER_S, BLURRED_S)
        loop = asyncio.get_running_loop()
        self._tick_handle = loop.call_later(max(wanted_s, affordable_s), self._tick)

    def _tick(self) -> None:
        if self._exit:
            return
        try:
            if isinstance(self._driver, TtyDriver):
                self._driver.look_at_size()
            self.frame()
        except Exception as error:  # noqa: BLE001  a callback of the loop: nobody above handles it
            self._handle_exception(error)
            return
        if self.options.close_at_end and self.presenter is not None and self.presenter.has_ended:
            self.exit(_ENDED)
            return
        self._plan_tick()

    def frame(self, *, is_fresh: bool = True) -> None:
        """One frame: take in what is new (where `is_fresh`), draw, and see it on the terminal."""
        presenter, controller = self.presenter, self._controller
        if presenter is None or controller is None:
            return
        with controller.gate.hold(GATE_NS), self._framing():
            if is_fresh:
                with controller.faults.around("taking in what is new"):
                    controller.pump()
                presenter.refresh(self._time.now_ns())
                self._tell(presenter.news())
            driver = self._driver
            if isinstance(driver, TtyDriver) and driver.stalled:
                return
            if self._must_forget or taken.was_written_over():
                self._must_forget = False
                self.canvas.forget()
            width, height = self.canvas.size
            self.canvas.show(presenter.lines(self._time.now_ns(), width, height))
            self._write(self.canvas.changes(self.console))
            self.frames += 1

    def _tell(self, news: str) -> None:
        """To who looks elsewhere: the title, and for news the bell and a notification."""
        driver = self._driver
        if driver is None or self.presenter is None:
            return
        name = PurePath(self.options.title).name
        if news and self._is_blurred:
            driver.write(f"\a\x1b]9;{plain.line(f'usv-tui {name}: {news}', 200)}\x07")
        title = plain.line(f"{self.presenter.headline()} - {name}", 120)
        if title != self._told_title and os.environ.get("TERM") != "linux":
            self._told_title = title
            driver.write(f"\x1b]2;{title}\x1b\\")
        if news:
            driver.flush()  # the end may leave no frame to follow

    def _write(self, sequence: str) -> None:
        """To the terminal, and see it taken; in one piece where the terminal can do that."""
        driver = self._driver
        if not sequence or driver is None:
            return
        self._begin_update()
        driver.write(sequence)
        self._end_update()
        if isinstance(driver, TtyDriver):
            driver.finish(DRAIN_S)

    @contextmanager
    def _framing(self) -> Iterator[None]:
        """Count the frame's CPU time."""
        start_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self.frame_cpu_ns = time.thread_time_ns() - start_ns
            self._painted_s = time.monotonic()
            share = self._cpu_shares.add(self.frame_cpu_ns, self._painted_s)
            if self.presenter is not None:
                self.presenter.ui_share = share

    def _display(self, screen: Any, renderable: Any) -> None:
        """Textual paints the skeleton; later it only says that the terminal needs all lines."""
        if self.presenter is None:
            super()._display(screen, renderable)
        elif renderable is not None:
            self._must_forget = True
            self._frame_soon()

    def _frame_soon(self) -> None:
        """A frame at once, or as soon as keys allow."""
        if self._key_frame is not None or self._exit:
            return
        wait_s = max(0.0, self._painted_s + KEY_PERIOD_S - time.monotonic())
        self._key_frame = asyncio.get_running_loop().call_later(wait_s, self._paint_for_key)

    def _paint_for_key(self) -> None:
        self._key_frame = None
        if self._exit:
            return
        try:
            self.frame(is_fresh=False)
        except Exception as error:  # noqa: BLE001  a callback of the loop: nobody above handles it
            self._handle_exception(error)

    # -- events

    async def on_event(self, event: events.Event) -> None:
        """Keys, pastes and the mouse are ours; the rest is Textual's."""
        if isinstance(event, events.Key):
            self._on_key_press(event.key, event.character)
        elif isinstance(event, events.Paste):
            if self.presenter is not None:
                self.presenter.paste(event.text)
                self._frame_soon()
        elif isinstance(event, events.MouseEvent):
            self._on_mouse(event)
        else:
            if isinstance(event, events.AppBlur | events.AppFocus):
                self._on_focus_change(is_blurred=isinstance(event, events.AppBlur))
            await super().on_event(event)

    def _on_key_press(self, key: str, character: str | None) -> None:
        presenter = self.presenter
        if presenter is None:
            if key in ("q", "ctrl+c"):
                self.exit(_QUIT if key == "q" else _ended_by(signal.SIGINT))
            return
        assert self._controller is not None
        now_ns = self._time.now_ns()
        action = ""
        with self._controller.faults.around(f"the key {key}"):
            action = presenter.press(key, character, now_ns)
        if action == "quit":
            self.exit(_QUIT)
        elif action == "interrupt":
            self.exit(_ended_by(signal.SIGINT))
        elif action == "suspend":
            self._suspend()
        elif action == "screenshot":
            self._take_picture()
        elif action in ("copy", "copy_verdict"):
            words = presenter.markdown() if action == "copy" else presenter.verdict()
            if words:
                self.copy_to_clipboard(words)
            what = "row copied as Markdown" if action == "copy" else f"copied: {words}"
            presenter.say(what if words else "no row to copy", now_ns)
        self._frame_soon()

    def _on_mouse(self, event: events.MouseEvent) -> None:
        presenter = self.presenter
        if presenter is None:
            return
        if isinstance(event, events.MouseScrollDown | events.MouseScrollUp):
            steps = 1 if isinstance(event, events.MouseScrollDown) else -1
            presenter.wheel(steps, int(event.y), self._time.now_ns())
        elif isinstance(event, events.MouseDown):
            key = presenter.click(int(event.x), int(event.y), self._time.now_ns())
            if key:
                self._on_key_press(key, None)
        else:
            return
        self._frame_soon()

    def _on_focus_change(self, *, is_blurred: bool) -> None:
        """Slow down when nobody looks; catch up at once when somebody does."""
        self._is_blurred = is_blurred
        if not is_blurred and self._tick_handle is not None and not self._exit:
            self._tick_handle.cancel()
            self._tick()

    def on_hangup(self, _: Hangup) -> None:
        """The terminal is gone."""
        self.exit(_ended_by(signal.SIGHUP))

    def _take_picture(self) -> None:
        """The screen as an SVG file beside the session; a PNG too where something can make one."""
        presenter, controller = self.presenter, self._controller
        assert presenter is not None
        assert controller is not None
        archive, folder = controller.store.archive, self.options.screenshots
        try:
            with controller.gate.hold(GATE_NS):
                path = picture.name_beside(archive, folder, self.options.title)
                path.write_text(self.export_screenshot(), encoding="utf-8")
                command = picture.converter(path)
        except OSError as error:
            presenter.say(f"no picture: {error.strerror or error}", self._time.now_ns())
            return
        presenter.say(f"saved {path}", self._time.now_ns())
        if command is not None:
            convert = partial(self._make_png, command, path)
            threading.Thread(target=convert, name="usv-picture", daemon=True).start()

    def _make_png(self, command: list[str], path: Path) -> None:
        png = picture.to_png(command, path)
        if png is not None:
            self._from_handler(partial(self._tell_png, png))

    def _tell_png(self, png: Path) -> None:
        if self.presenter is not None:
            self.presenter.say(f"saved {png} and .svg", self._time.now_ns())
            self._frame_soon()

    def _suspend(self) -> None:
        """Stop the program as the shell's job control does; here it goes on after `fg`."""
        driver, controller = self._driver, self._controller
        if not isinstance(driver, TtyDriver):
            return
        with controller.gate.hold(GATE_NS) if controller is not None else nullcontext():
            driver.suspend_application_mode()
            ours.give_back([signal.SIGTSTP])
            os.kill(0, signal.SIGTSTP)
            wait_for_foreground()
            self._handle_stops()
            driver.resume_application_mode()
        if self.presenter is not None:
            self.presenter.resume()
        self._must_forget = True
        self._frame_soon()

    def _go_on(self) -> None:
        """The program was stopped without a warning and goes on: take the terminal anew."""
        if isinstance(self._driver, TtyDriver):
            self._driver.take_again()
            self._must_forget = True
            self._frame_soon()

    def _fatal_error(self) -> None:
        """An error in our code: leave in order; the caller raises it with its own traceback."""
        self.failure = self._exception
        self._close_messages_no_wait()

    async def _shutdown(self) -> None:
        for handle in (self._tick_handle, self._key_frame):
            if handle is not None:
                handle.cancel()
        ours.give_back([signal.SIGTSTP, signal.SIGCONT])
        await super()._shutdown()


class _Share:
    """CPU time over time, of the last few seconds."""

    WINDOW_S = 10.0

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []
        self._total_ns = 0

    def add(self, cpu_ns: int, now_s: float) -> float:
        """The share including this frame."""
        self._total_ns += cpu_ns
        self._marks.append((now_s, self._total_ns))
        while len(self._marks) > 2 and now_s - self._marks[1][0] >= self.WINDOW_S:
            self._marks.pop(0)
        first_s, first_ns = self._marks[0]
        elapsed_s = now_s - first_s
        return (self._total_ns - first_ns) / NS_PER_S / elapsed_s if elapsed_s > 0.5 else 0.0
