"""Who may import whom: read from the sources, and seen in fresh interpreters."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import usv_tui

ROOT = Path(usv_tui.__file__).parent
MAP = (ROOT.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES = [line.split() for line in MAP.split("```layers\n")[1].split("```")[0].splitlines()]
LAYERS = [{"" if name == "usv_tui" else name for name in line} - {"*"} for line in LINES]
"""From the bottom up. A room may import from the layers below it and from itself."""
TOGETHER = set().union(*(layer for layer, line in zip(LAYERS, LINES, strict=True) if "*" in line))
"""Rooms that may import from their neighbours in the same layer; `` is the library's face."""
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
MODULES = {
    ".".join(("usv_tui", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}
TORCH = {
    "usv_tui.timers.events",
    "usv_tui.timers.cache",
    "usv_tui.engine.choice",
    "usv_tui.telemetry.identity",
}
KERNELS = "usv_tui.timers.probe_kernels"
"""Triton reads a kernel's source at its decorator, so this one module imports it at the top; it is
itself imported only where triton is installed."""
HEAVY = ("torch", "numpy", "textual", "rich", "scipy", "pynvml", "amdsmi")


def room(module):
    """The first part of a module's name below the package; empty for the package itself."""
    return [*module.split("."), ""][1]


def imports(module, *, top_level_only=False):
    """Full names of what a module imports, as statements or through `import_module("...")`."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    nodes = _top_level(tree) if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            full = [f"{source}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else source for name in full}
        elif _is_import_call(node):
            found.add(node.args[0].value)
    return found


def _is_import_call(node):
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    argument = node.args[0]
    return name in ("import_module", "__import__") and isinstance(
        getattr(argument, "value", None), str
    )


def _top_level(tree):
    """Statements that run when the module is imported; not those for type checkers only."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def loaded(code):
    """Which of the heavy packages are loaded after `code` has run in a fresh interpreter."""
    script = (
        f"{code}\nimport json, sys\nprint(json.dumps([h for h in {HEAVY!r} if h in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT.parent,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# -- read from the sources


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_place_in_the_house(module):
    """Every module belongs to a known room: a new one must be given its layer on the map."""
    assert room(module) in RANK


def test_the_map_shows_no_room_that_is_not_there():
    """Every room on the map exists, once."""
    rooms = [name for layer in LAYERS for name in layer]

    assert sorted(rooms) == sorted({room(module) for module in MODULES})
    paths = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", MAP)
    assert paths
    assert [
        path for path in paths if not any((base / path).exists() for base in (ROOT, ROOT.parent))
    ] == []


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    """A room imports from the layers below it, and from a neighbour only where that is meant."""
    own = room(module)
    ours = {name for name in imports(module) if name.split(".")[0] == "usv_tui"}

    wrong = {
        name
        for name in ours
        if (target := room(name)) != own
        and not (
            RANK[target] < RANK[own] or (RANK[target] == RANK[own] and {own, target} <= TOGETHER)
        )
    }

    assert wrong == set()


def users(*packages):
    """The modules that import one of these packages anywhere in their source."""
    return {m for m in MODULES if {name.split(".")[0] for name in imports(m)} & set(packages)}


def test_only_the_screen_knows_textual():
    """Textual (and rich, which it draws with) is imported below `tui` and nowhere else."""
    assert {room(module) for module in users("textual", "rich")} == {"tui"}


def test_only_four_modules_know_torch():
    """Torch is imported by the event timer, the cache, the identity and the worker's start."""
    assert users("torch") <= TORCH


def test_torch_and_vendor_libraries_are_never_imported_at_the_top():
    """Importing a module of ours loads neither torch nor a vendor's library."""
    late = {"torch", "triton", "pynvml", "amdsmi", "ruptures"}

    early = {
        module: names
        for module in set(MODULES) - {KERNELS}
        if (names := {n.split(".")[0] for n in imports(module, top_level_only=True)} & late)
    }

    assert early == {}
    assert not [m for m in MODULES if KERNELS in imports(m, top_level_only=True)]


def test_vendor_libraries_stay_in_one_room():
    """One door each to NVML and to amdsmi."""
    assert users("pynvml") == {"usv_tui.vendor.nvml"}
    assert users("amdsmi") == {"usv_tui.vendor.amd_smi"}


def test_statistics_know_only_numbers():
    """`stats` imports numpy, scipy, the standard library and the nouns: no device, no file."""
    allowed = {"numpy", "scipy", "msgspec", "ruptures", *sys.stdlib_module_names}
    banned = {"os", "pathlib", "io", "socket", "subprocess", "threading", "time"}

    for module in (m for m in MODULES if room(m) == "stats"):
        for name in imports(module):
            head = name.split(".")[0]
            is_ours = room(name) in ("stats", "model") and head == "usv_tui"
            assert is_ours or (head in allowed - banned), f"{module} imports {name}"


def test_nothing_uses_multiprocessing():
    """Spawning dies inside a running screen: the worker process is started with subprocess."""
    assert users("multiprocessing", "concurrent") == set()


# -- seen in fresh interpreters


def test_the_library_costs_nothing_to_import():
    """`import usv_tui` loads neither torch nor numpy nor textual, nor any vendor's library."""
    assert loaded("import usv_tui, usv_tui.suite.authoring; from usv_tui import benchmark") == []


def test_the_command_line_is_checked_before_anything_heavy():
    """Help, a wrong flag and a missing file are answered without numpy, torch or textual."""
    code = """
import contextlib
from usv_tui.cli import main as cli
with contextlib.suppress(SystemExit):
    cli.main(["--help"])
assert cli.main(["--iters", "none", "x.py"]) == 2
assert cli.main(["no-such-file.py"]) == 2
assert cli.main(["--version"]) == 0
"""
    assert loaded(code) == []


def test_a_run_without_a_screen_never_loads_textual():
    """The headless front end, the session and the reports come without textual and torch."""
    code = "\n".join(
        f"import {module}"
        for module in set(MODULES) - {KERNELS}
        if room(module)
        in (
            "session",
            "report",
            "engine",
            "telemetry",
            "clocks",
            "timers",
            "diagnosis",
            "environment",
        )
    )

    assert set(loaded(code)) <= {"numpy", "scipy"}


def test_every_module_can_be_imported_and_none_brings_torch():
    """All of the package imports in one interpreter, with neither torch nor a vendor's library."""
    names = [module for module in MODULES if module not in ("usv_tui.__main__", KERNELS)]
    code = "\n".join(f"import {name}" for name in names)

    assert not set(loaded(code)) & {"torch", "pynvml", "amdsmi"}


@pytest.mark.parametrize("name", usv_tui.__all__)
def test_every_public_name_is_there(name):
    """Each name of the library's face resolves, and completes in a shell."""
    assert getattr(usv_tui, name) is not None
    assert name in dir(usv_tui)


def test_a_wrong_name_is_an_attribute_error():
    """A misspelt name fails as it does in any module."""
    with pytest.raises(AttributeError, match="no attribute 'do_bnech'"):
        usv_tui.do_bnech  # noqa: B018  the access is what is tested


CITATION = re.compile(r"\(?\b(?:[A-Z]\d{1,2}|7\.\d{1,2})\)?: |\((?:[A-Z]\d{1,2}|7\.\d{1,2})\b")


@pytest.mark.parametrize(
    "text", ["It holds (M8).", "M8: it holds.", "As told (7.18).", "x (A3, B4)"]
)
def test_a_mark_of_a_section_is_seen(text):
    """A letter with a number, or a number of a chapter, in brackets or before a colon."""
    assert CITATION.search(text)


def test_docstrings_cite_nothing_that_is_not_here():
    """No section numbers of a paper that a reader of the repository does not have."""
    files = [*ROOT.rglob("*.py"), *Path(__file__).parents[1].rglob("*.py")]
    cited = [
        f"{path.name}: {text}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(text := node.value.value, str)
        and CITATION.search(text)
    ]

    assert cited == []
