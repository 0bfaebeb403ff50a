"""The wheel by itself: in an environment of its own, without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import usv_tui
from usv_tui.cli import starter

ROOT = Path(usv_tui.__file__).parents[1]
pytest.importorskip("hatchling")


def run(*command, cwd):
    """A command's stdout; it must end well."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=ROOT)
    return next(out.glob("usv_tui-*.whl"))


def test_a_wheel_is_whole(wheel):
    """It holds the package with its types, its licence and its version, and nothing else."""
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name.startswith(f"usv_tui-{usv_tui.__version__}-")
    assert "usv_tui/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"usv_tui"}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "usv_tui").rglob("*.py")}
    assert sources <= set(names)
    assert {f"usv_tui/suites/{name}.py" for name in starter.SHIPPED} <= set(names)


def test_a_wheel_measures_outside_the_checkout(wheel, tmp_path):
    """In a fresh environment the program says its version, and times a simulated card."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    # What the package needs comes from here; lines of a .pth bring no further .pth along.
    needed = [path for path in sys.path if path.endswith("-packages")]
    (site / "needed.pth").write_text("\n".join(needed))
    python = tmp_path / "venv" / "bin" / "python"

    home = run(python, "-c", "import usv_tui; print(usv_tui.__file__)", cwd=tmp_path)
    assert Path(home.strip()) == site / "usv_tui" / "__init__.py"
    said = run(python, "-m", "usv_tui", "--version", cwd=tmp_path)
    assert said == f"usv-tui {usv_tui.__version__}\n"
    options = ("--device", "sim:h100", "--headless", "--iters", "20", "--no-save")
    assert "SIMULATED" in run(python, "-m", "usv_tui", *options, cwd=tmp_path).upper()
