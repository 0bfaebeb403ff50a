import sys

from usv_tui.engine.imports import Imports


def test_what_is_imported_by_is_put_back(monkeypatch):
    """Modules and paths that a row emptied are there again, and what it added itself stays."""
    modules, path = dict(sys.modules), list(sys.path)
    imports = Imports()
    assert imports.mend() == ""
    try:
        sys.modules.clear()
        sys.modules["mine"] = sys
        sys.path[:] = ["/mine"]
        lost = imports.mend()
        now = dict(sys.modules), list(sys.path)
        again = imports.mend()
    finally:
        sys.modules.clear()
        sys.modules.update(modules)
        sys.path[:] = path

    assert (lost, again) == ("sys.modules and sys.path", "")
    assert now[0] == modules | {"mine": sys}
    assert now[1] == ["/mine", *dict.fromkeys(path)]


def test_a_path_of_the_rows_own_is_its_affair(monkeypatch):
    """Only what we import by ourselves is watched."""
    imports = Imports()
    monkeypatch.setattr(sys, "path", ["/mine", *sys.path])

    assert imports.mend() == ""
    assert sys.path[0] == "/mine"
