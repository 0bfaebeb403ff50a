from array import array

from usv_tui.engine.where import Where
from usv_tui.suite.discovery import load_suite
from usv_tui.timers.wall import Slot


def test_where_the_worker_is_and_was_last():
    """A row while it is in its code, none between two, and the one before it."""
    where = Where(array("i", [0] * 3))
    assert (where.bench, where.last) == (None, None)
    where.at(4)
    assert (where.bench, where.last) == (4, 4)
    where.at(None)
    assert (where.bench, where.last) == (None, 4)
    for slot in where.along([Slot(0, print), Slot(2, print)]):
        assert where.bench == slot.bench
    where.at(None)
    where.at(None)
    assert (where.bench, where.last) == (None, 2)


def test_who_closed_the_pipe_is_told_once():
    """The first one, or nobody in particular where no row had begun."""
    nobody, somebody = Where(), Where()
    nobody.blame()
    somebody.at(0)
    somebody.blame()
    somebody.at(1)
    somebody.blame()

    assert (nobody.is_closed, nobody.closer) == (True, None)
    assert (somebody.is_closed, somebody.closer) == (True, 0)
    assert not Where().is_closed


def test_the_stack_of_a_slow_import_is_the_user_s_files_alone(tmp_path):
    """Neither how Python imports nor how the file was loaded stands between them."""
    (tmp_path / "slow_inside.py").write_text(
        "import sys, threading\n"
        "found, me = [], threading.get_ident()\n"
        "look = lambda: found.extend(sys.modules['usv_tui.engine.where'].stack_of(me))\n"
        "other = threading.Thread(target=look)\n"
        "other.start(); other.join()\n"
    )
    file = tmp_path / "suite.py"
    file.write_text("import slow_inside\nBENCHMARKS = {'a': lambda: slow_inside.found}\n")

    lines = load_suite(file, "cpu").benchmarks[0].build("cpu")()

    assert "suite.py:1: import slow_inside" in lines[0]
    assert "slow_inside.py:5: other.start(); other.join()" in lines[1]
    assert "importlib" not in "".join(lines)
