import numpy as np
import pytest

from tests.fakes.loop import MS, Loop
from usv_tui.model import Benchmark
from usv_tui.records import BenchError, Noted
from usv_tui.suite.inputs import Inputs
from usv_tui.timesource import NS_PER_S

US = 1000


def draw():
    """Fresh inputs: an array of nothing that was there before."""
    return np.random.rand(64)  # noqa: NPY002  what users draw from


def same(mine, base):
    """The check that the author gave."""
    return np.allclose(mine, base)


class Judged(Loop):
    """A baseline that squares its inputs, and rows beside it; what was said of them."""

    def __init__(self, **config):
        super().__init__(**({"max_time_s": 3.0} | config))
        self.row("base", self.honest, is_baseline=True)

    def honest(self, x):
        """The work: a millisecond."""
        self.time.advance(MS)
        return x * x

    def quick(self, value=None):
        """Hardly any time."""
        self.time.advance(US)
        return value

    def row(self, name, fn, **options):
        """A row with fresh inputs and a check."""
        options = {"inputs": draw, "check": same, "group": "g"} | options
        self.benchmarks.append(Benchmark(name=name, build=lambda _device: fn, **options))

    def verdict(self):
        """Codes that were said of the second row, failures among them."""
        self.run()
        failed = [r.kind for r in self.of(BenchError) if r.bench == 1]
        notices = [r.notice for r in self.of(Noted)]
        assert not [n for n in notices if n.bench == 0 and n.level == "error"]
        said = {n.code for n in notices if n.bench == 1 and n.level == "error"}
        return said | set(failed)


def test_an_honest_row_is_not_accused():
    """Equal work on equal inputs: nothing is said, and the cost of the looks is told."""
    loop = Judged()
    loop.row("honest", loop.honest)

    assert loop.verdict() == set()

    told = [r.notice.evidence for r in loop.of(Noted) if r.notice.code == "audited"]
    assert told[0]["looks"] >= 3
    assert told[0]["seconds"] < 0.5


def test_a_memo_by_identity_returns_a_stale_result():
    """What was kept for the same object is not the result of what is in it now."""
    loop, kept = Judged(), {}

    def memo(x):
        if id(x) not in kept:
            kept[id(x)] = loop.honest(x)
        return loop.quick(kept[id(x)])

    loop.row("memo", memo)

    assert "stale result" in loop.verdict()


def test_a_memo_by_content_is_faster_again():
    """A memo that is never wrong has no work left when it is asked the same once more."""
    loop, kept = Judged(), {}

    def memo(x):
        key = x.tobytes()
        if key not in kept:
            kept[key] = loop.honest(x)
        return loop.quick(kept[key].copy())

    loop.row("memo", memo)

    assert loop.verdict() == {"faster again"}


def test_the_result_of_the_inputs_before_is_stale():
    """A row that returns what it has and works on the new inputs later is one call behind."""
    loop, last = Judged(), []

    def behind(x):
        last.append(loop.honest(x))
        return last.pop(0) if len(last) > 1 else last[0].copy()

    loop.row("behind", behind)

    assert loop.verdict() & {"stale result", "wrong result"}


def test_a_row_that_is_right_only_at_first_is_wrong():
    """A decaying row passes the first check, and none during the run."""
    loop, calls = Judged(), []

    def decaying(x):
        calls.append(1)
        return loop.honest(x) if len(calls) < 100 else loop.quick(np.zeros(64))

    loop.row("decaying", decaying)

    assert loop.verdict() == {"wrong result"}


def test_a_constant_result_is_seen_without_inputs():
    """A result that is overwritten before a call and left so was not written by it."""
    loop, kept = Judged(), []

    def constant():
        if not kept:
            kept.append(loop.honest(np.arange(8.0)))
        return loop.quick(kept[0])

    loop.benchmarks.clear()
    loop.row("base", lambda: loop.honest(np.arange(8.0)), is_baseline=True, inputs=None)
    loop.row("constant", constant, inputs=None)

    assert loop.verdict() == {"nothing written"}
    assert np.array_equal(kept[0], np.arange(8.0) ** 2)


def test_a_result_that_comes_later_is_unfinished():
    """A result that still changes after the window was not worked out in it."""
    loop = Judged()

    def later(x):
        made = np.zeros(64)
        at_s = loop.time.seconds + 1e-5
        loop.time.at(at_s, lambda: np.multiply(x, x, out=made))
        return loop.quick(made)

    loop.row("later", later, check=None)

    assert "unfinished result" in loop.verdict()


def test_a_row_that_changes_its_inputs_gets_them_anew():
    """In-place work is no fault: each call finds what was drawn, and the row says so."""
    loop = Judged()

    def in_place(x):
        loop.time.advance(MS)
        x *= x
        return x

    loop.row("in place", in_place)

    assert loop.verdict() == set()
    assert "inputs restored" in [r.notice.code for r in loop.of(Noted) if r.notice.bench == 1]


@pytest.mark.parametrize("kind", ["view", "buffer", "state", "workspace"])
def test_honest_habits_are_not_accused(kind):
    """A view of the input, a buffer of its own, a state that goes on, a workspace made late."""
    loop = Judged()
    buffer, state, late = np.zeros(64), np.ones(64), []

    def fn(x):
        loop.time.advance(MS)
        if kind == "view":
            return x[::-1]
        if kind == "buffer":
            return np.multiply(x, x, out=buffer)
        if kind == "state":
            state[:] = 0.5 * state + x
            return state
        if not late:
            late.append(np.empty(64))
        return np.multiply(x, x, out=late[0])

    check = same if kind in ("buffer", "workspace") else None
    loop.row(kind, fn, check=check)

    assert loop.verdict() == set()


def test_sets_are_handed_out_in_turn_and_renewed_in_place():
    """Successive calls get other arrays; renewing keeps the objects and changes the content."""
    seen = []
    inputs = Inputs(draw, lambda x: seen.append((id(x), x.copy())), seed=1)
    for _ in range(4):
        assert inputs.call() is None

    assert len({place for place, _ in seen[:3]}) == 3
    assert seen[3][0] == seen[0][0]
    held = inputs.sets[0][0]
    inputs.renew(0, inputs.draw(99))
    assert inputs.sets[0][0] is held
    assert not np.array_equal(held, seen[0][1])


def test_rows_that_draw_alike_get_equal_inputs():
    """The same seed gives every row of a group the same sets."""
    one, other = (Inputs(draw, lambda x: x, seed=5) for _ in range(2))

    assert all(np.array_equal(a[0], b[0]) for a, b in zip(one.sets, other.sets, strict=True))


def test_looks_cost_a_bounded_part_of_the_run():
    """However dear a row's looks are, they take at most a small part of the time."""
    loop = Judged(max_time_s=20.0)
    loop.row("honest", loop.honest)
    loop.run()

    (told,) = [r.notice.evidence for r in loop.of(Noted) if r.notice.code == "audited"]
    assert told["seconds"] < 0.06 * 20
    assert loop.time.seconds < 21
    assert NS_PER_S


def test_a_result_that_cannot_be_copied_ends_nothing():
    """A stranger's array whose copy raises: its row is told as not audited, and measured on."""

    class Stranger(np.ndarray):
        def copy(self):
            raise RuntimeError("no copies")

    loop = Judged()
    loop.row("strange", lambda x: (loop.honest(x), np.zeros(3).view(Stranger))[1], check=None)

    assert loop.verdict() == set()
    assert "not audited" in [r.notice.code for r in loop.of(Noted) if r.notice.bench == 1]
    assert len(loop.samples(1)) > 100


def test_smaller_inputs_than_the_baselines_are_named():
    """A row that draws a tenth of what its baseline draws does not do the same work."""
    loop = Judged()
    loop.row("tiny", loop.honest, inputs=lambda: np.random.rand(6))  # noqa: NPY002

    assert "inputs differ" in loop.verdict()


def test_a_row_that_there_is_no_time_to_look_at_is_told_of():
    """Whether it keeps results cannot be known then, and it is not to be called faster."""
    loop = Judged(max_time_s=3.0)
    for i in range(60):
        loop.row(f"row {i}", loop.honest)
    loop.run()

    few = {r.notice.bench for r in loop.of(Noted) if r.notice.code == "few looks"}
    assert len(few) > 10
    assert loop.time.seconds < 5.0
