"""Wrong arguments of the library: one line that says what is wanted, before anything is timed."""

import pytest

import usv_tui as usv
from usv_tui.errors import UsageError
from usv_tui.library.fixed import fixed_clocks


def nothing():
    """A callable that must never be timed here."""
    raise AssertionError


def wall(**options):
    """Time it, which must be refused."""
    return usv.do_bench(nothing, timer="wall", **options)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: usv.do_bench(None), TypeError, "fn is None (give a function of no arguments)"),
        (lambda: usv.do_bench(3), TypeError, "fn is 3"),
        (lambda: usv.do_bench_many([nothing]), TypeError, "a list (give a dict: {name: callable})"),
        (lambda: usv.do_bench_many(nothing), TypeError, "give a dict"),
        (lambda: usv.do_bench_many({"a": None}), TypeError, "fns['a'] is None"),
        (lambda: wall(iters=-1), ValueError, "iters=-1 (give a whole number from 0)"),
        (lambda: wall(iters=None), TypeError, "iters is None"),
        (lambda: wall(iters="x"), ValueError, "iters='x'"),
        (lambda: wall(warmup=-1), ValueError, "warmup=-1"),
        (lambda: wall(min_warmup_time=-1), ValueError, "min_warmup_time=-1"),
        (lambda: wall(min_iters_time=float("nan")), ValueError, "min_iters_time=nan"),
        (lambda: wall(target_window_s=-1), ValueError, "target_window_s=-1"),
        (lambda: wall(flush_mb=-3), ValueError, "flush_mb=-3"),
        (lambda: wall(flops=-1), ValueError, "flops=-1 (give a number from 0)"),
        (lambda: wall(bytes=[]), TypeError, "bytes is []"),
        (lambda: usv.do_bench_many({"a": nothing}, flops=3), TypeError, "flops is a int"),
        (lambda: usv.save_results([1]), TypeError, "all_results is a list"),
        (lambda: usv.save_results({}, "x.json"), TypeError, "save_results got 'x.json' as well"),
        (lambda: usv.save_results({}, label=3), TypeError, "label is 3"),
        (lambda: usv.save_results({}, results_dir=3), TypeError, "results_dir is 3"),
        (lambda: usv.save_results({"a": object()}), TypeError, "a object is in the results"),
        (lambda: usv.load_results(None), TypeError, "path is None"),
        (lambda: usv.load_results(3), TypeError, "path is 3"),
        (lambda: usv.format_table(None), TypeError, "measurements is None"),
        (lambda: usv.format_table([3]), TypeError, "not all of these are measurements"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_wanted(call, kind, words, tmp_path, monkeypatch):
    """A TypeError for a wrong kind and a ValueError for a wrong value, in one line."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        call()

    assert isinstance(caught.value, kind)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_table_takes_one_measurement_and_a_dict_of_them():
    """What do_bench and do_bench_many return can be shown as it is."""
    one = usv.do_bench(lambda: None, timer="wall", iters=2, name="a")

    assert usv.format_table(one) == usv.format_table({"a": one}) == usv.format_table([one])


def test_a_vendor_that_there_is_not_is_named_before_a_device_is_looked_for():
    """The argument, its value and what it may be, in one line."""
    wanted = fixed_clocks(vendor="x", resolver=lambda _: pytest.fail("looked for a device"))

    with pytest.raises(ValueError, match=r"vendor is 'x'.*one of auto, nvidia"), wanted:
        pass
