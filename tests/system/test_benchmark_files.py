from pathlib import Path

import pytest

from usv_tui.errors import SuiteError
from usv_tui.suite.discovery import load_suite
from usv_tui.suite.rows import assemble

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module", params=["attn", "matmul", "memory", "train_step"])
def suite(request):
    """One of the files that come with the program, for this CPU."""
    return load_suite(FOLDER / f"{request.param}.py", "cpu")


@pytest.fixture(scope="module")
def built(suite):
    """Its rows, set up, with what their first call returned."""
    rows = []
    for row in suite.benchmarks:
        parts = assemble(row, "cpu")
        if parts.reset is not None:
            parts.reset()
        rows.append((row, parts, parts.fn()))
    return rows


def test_every_row_runs_and_agrees_with_its_baseline(built):
    """All rows can be called, each group has its baseline, and `check` finds the same results."""
    bases = {row.group: result for row, _, result in built if row.is_baseline}

    for row, parts, result in built:
        assert row.group in bases
        if parts.check is not None:
            assert parts.check(result, bases[row.group]) is not False


def test_check_finds_a_wrong_result(built):
    """A kernel that returns something else is not merely fast."""
    checked = [(parts.check, result) for _, parts, result in built if parts.check is not None]

    for check, result in checked:
        with pytest.raises(AssertionError):
            check(result * 2, result.float())


def test_a_round_is_short_on_a_cpu(suite):
    """All rows once are little work for one core, so that the interleave is fine-grained."""
    assert sum(row.flops or 0 for row in suite.benchmarks) < 4e9
    assert sum(row.bytes or 0 for row in suite.benchmarks) < 2e9


def test_every_row_says_what_it_does(suite):
    """Work is positive where it is stated, and every row states operations or bytes."""
    for row in suite.benchmarks:
        assert (row.flops or 0) > 0 or (row.bytes or 0) > 0


@pytest.mark.parametrize("name", ["attn", "matmul", "train_step"])
def test_a_device_that_is_not_here_is_skipped_with_its_reason(name):
    """What torch says of a missing device or kernel is the reason of the skip."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")

    with pytest.raises(SuiteError, match="every benchmark is skipped"):
        load_suite(FOLDER / f"{name}.py", "cuda:0")


def test_attention_counts_the_usual_operations():
    """4*B*H*S*S*D, half of it under a causal mask, and four arrays of B*H*S*D in single."""
    rows = {r.name: r for r in load_suite(FOLDER / "attn.py", "cpu", ["seq=128", "x"]).benchmarks}
    full = rows["attention[seq=128,causal=False,kind=math]"]
    half = rows["attention[seq=128,causal=True,kind=math]"]

    assert full.flops == 4 * 4 * 4 * 128 * 128 * 64
    assert half.flops == full.flops / 2
    assert full.bytes == half.bytes == 4 * 4 * 4 * 128 * 64 * 4
