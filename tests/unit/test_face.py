import subprocess
import sys

import pytest

import usv_tui


def loaded_after(code):
    """Which heavy packages a fresh interpreter has loaded after running the code."""
    heavy = ("torch", "numpy", "textual", "rich", "msgspec", "pynvml")
    script = f"import sys\n{code}\nprint([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    """The package alone brings neither torch nor numpy nor textual, not even msgspec."""
    assert loaded_after("import usv_tui") == "[]"


def test_what_a_benchmark_file_imports_is_light():
    """benchmark, phase and rotating cost neither torch nor numpy nor textual."""
    assert loaded_after("from usv_tui import benchmark, phase, rotating") == "['msgspec']"


def test_the_timing_functions_bring_numpy_but_no_torch():
    """do_bench by the wall clock never imports torch, textual or a vendor library."""
    code = "import usv_tui as usv\nusv.do_bench(lambda: 1, timer='wall', iters=2)"

    assert loaded_after(code) == "['numpy', 'msgspec']"


@pytest.mark.parametrize("name", usv_tui.__all__)
def test_every_public_name_can_be_had(name):
    """What __all__ promises is there, documented, and listed by dir()."""
    assert getattr(usv_tui, name).__doc__
    assert name in dir(usv_tui)


def test_other_names_are_attribute_errors():
    """A misspelt name fails as in any module."""
    with pytest.raises(AttributeError, match="do_bnch"):
        _ = usv_tui.do_bnch
