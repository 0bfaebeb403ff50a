from array import array

from usv_tui.engine.where import Where
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
