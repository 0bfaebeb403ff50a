import json
from functools import partial

import pytest

from usv_tui.engine.where import Outside
from usv_tui.timers.wall import Slot
from usv_tui.tui import keeper
from usv_tui.tui.board import Board

US = "/lib/usv_tui/"
WORKER = f"""\
Thread 0x01 (most recent call first):
  File "/home/me/file.py", line 9 in inner
  File "/home/me/file.py", line 12 in fn
  File "{US}timers/wall.py", line 200 in enqueue
  File "{US}engine/runner.py", line 800 in _run_block
  File "/usr/lib/threading.py", line 982 in run
""".splitlines()
MAIN = f"""\
Current thread 0x02 (most recent call first):
  File "{US}tui/app.py", line 5 in frame
  File "/usr/lib/asyncio/events.py", line 80 in _run
""".splitlines()
THEIRS = """\
Current thread 0x03 (most recent call first):
  File "/home/me/file.py", line 3 in crash
  File "/usr/lib/threading.py", line 982 in run
""".splitlines()
FN = ("/home/me/file.py", 12, "fn")


@pytest.mark.parametrize(
    ("lines", "is_crash", "frame", "is_measuring"),
    [
        (["old noise", *MAIN, "", *WORKER], False, FN, True),
        ([*WORKER, "", *MAIN], False, FN, True),
        (["Current thread" + WORKER[0][6:], *WORKER[1:]], True, FN, True),
        ([*THEIRS, "", *WORKER], True, ("/home/me/file.py", 3, "crash"), False),
        ([WORKER[0], *WORKER[3:]], False, None, True),
        ([], True, None, True),
    ],
)
def test_the_stacks_show_what_the_measuring_thread_called(lines, is_crash, frame, is_measuring):
    """The function that the timer called; of a crash in another thread, where that was."""
    assert keeper._user_frame(lines, US, is_crash=is_crash) == (frame, is_measuring)


def test_a_function_is_the_row_that_begins_right_before_its_line():
    """Rows that share their code are all named: nothing tells them apart from outside."""
    rows = {
        "0": ["a", "/home/me/file.py", "fn", 2],
        "1": ["b[n=1]", "/home/me/file.py", "fn", 10],
        "2": ["b[n=2]", "/home/me/file.py", "fn", 10],
        "3": ["c", "/home/me/file.py", "fn", 20],
        "4": ["d", "/home/me/other.py", "fn", 11],
    }

    assert keeper._rows_of(FN, rows) == ["b[n=1]", "b[n=2]"]
    assert keeper._rows_of(None, rows) == []


def test_a_crash_is_called_what_the_log_calls_it():
    """The latest one counts; without one there is nothing to call."""
    lines = ["Fatal Python error: Aborted", "x", "Fatal Python error: Segmentation fault"]

    assert keeper._crash(lines) == "crashed (Segmentation fault)"
    assert keeper._crash(["all is well"]) == ""


def test_the_board_has_rows_heartbeat_and_phase():
    """What the keeper reads is what the program wrote, and an end is never taken back."""
    board = Board()
    assert not board.was_written_over()
    board.beat()
    first = board.cells[keeper.BEATS]
    board.beat()
    board.say_ending()
    board.say_done()
    board.say_ending()
    board.cells[keeper.TOLD] += 1

    assert 0 < first < board.cells[keeper.BEATS]
    assert board.cells[keeper.PHASE] == keeper.DONE
    assert (board.was_written_over(), board.was_written_over()) == (True, False)


def test_rows_are_known_from_outside_with_their_code():
    """A function, a partial and an object that can be called; one of C has no code."""
    board = Board()
    where = Outside(board.row_cells, board.meet)

    def fn():
        """Nothing."""

    class Called:
        def __call__(self):
            """Nothing."""

    for bench, found in enumerate((fn, partial(fn), Called(), len)):
        where.meet(bench, f"row {bench}")
        where.at(bench)
        where.meet(bench, f"row {bench}", found)

    text = bytes(board._memory[keeper.TEXT : keeper.TEXT + board.cells[keeper.LENGTH]])
    rows = json.loads(text)
    line = fn.__code__.co_firstlineno
    assert rows["0"] == ["row 0", __file__, "fn", line]
    assert rows["1"] == ["row 1", __file__, "fn", line]
    assert rows["2"][2] == "__call__"
    assert rows["3"] == ["row 3", "", "", 0]
    assert board.cells[keeper.ROW] == 4
    where.at(None)
    assert board.cells[keeper.ROW] == 0
    slots = [Slot(0, fn)]
    assert where.along(slots) is slots


def test_a_file_of_very_many_rows_fits():
    """The further ones go without a name, and the board keeps what it has."""
    board = Board()
    for bench in range(3 * 100):
        board.meet(bench, f"row {bench} " + "x" * 500, None)

    text = bytes(board._memory[keeper.TEXT : keeper.TEXT + board.cells[keeper.LENGTH]])
    assert len(json.loads(text)) == 100
