import numpy as np
import pytest
import torch

from usv_tui.diagnosis.difference import difference, hint


class Odd:
    """A value whose equality raises."""

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    ("mine", "base"),
    [
        (1.5, 1.5),
        (np.arange(5.0), np.arange(5.0)),
        (torch.ones(3), torch.ones(3)),
        ([1, (2.0, "x")], [1, (2.0, "x")]),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2)}),
        (np.array([np.inf, 1.0]), np.array([np.inf, 1.0])),
        (Odd(), Odd()),
        (None, None),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64)),
    ],
)
def test_of_equal_results_nothing_is_told(mine, base):
    """Equal numbers, arrays, tensors and containers differ in no words, nor does the unknown."""
    if isinstance(mine, torch.Tensor) and mine.is_complex():
        assert "against" in difference(mine, base) or difference(mine, base) == ""
    else:
        assert difference(mine, base) == ""


@pytest.mark.parametrize(
    ("mine", "base", "words"),
    [
        (2.0, 1.0, "by up to 1 where the baseline reaches 1"),
        (np.zeros(4), np.ones(5), "shape (4,) against (5,)"),
        (torch.ones(4), torch.tensor([1.0, 1.0, 1.0, 3.0]), "in 25.0% of 4 elements"),
        (torch.ones(2, dtype=torch.bfloat16) * 2, torch.ones(2), "bfloat16 against float32"),
        ([torch.ones(1), torch.ones(1)], [torch.ones(1), torch.zeros(1)], "in item 1: by up to 1"),
        ({"a": 1}, {"a": 1, "b": 2}, "1 items against 2"),
        (None, torch.ones(1), "a NoneType against a Tensor"),
        ("yes", "no", "'yes' against 'no'"),
        (np.array([1.0, np.nan]), np.ones(2), "1 of 2 elements are not finite"),
    ],
)
def test_how_results_differ_is_told(mine, base, words):
    """By how much, in how many elements, in which item, of which kinds."""
    assert words in difference(mine, base)


def test_another_dtype_is_hinted_at_first():
    """Lower precision is no wrong kernel: the hint asks for a tolerance."""
    assert hint(torch.ones(1, dtype=torch.float16), torch.ones(1)).startswith("another dtype")
    assert "reset" in hint(1.0, 2.0)
    assert "dtype" not in hint(1.0, 2.0)
