"""Edit, save, see: frozen copies, what is a save, and a head that follows another."""

import time
from pathlib import Path

import msgspec
import pytest

from tests.fakes.duet import LABELS, MS, DuetRun
from usv_tui.model import Answer, RunConfig, WorkRequest
from usv_tui.records import Bench, Fault, Noted, Progress, State, Version
from usv_tui.session import frozen
from usv_tui.session.duet import Head
from usv_tui.session.frozen import Project, broken
from usv_tui.session.live import Loss
from usv_tui.session.saves import Saves, Scouted
from usv_tui.timesource import NS_PER_S, ManualTime


@pytest.fixture
def project(tmp_path):
    """A benchmark in a folder of a project, with a helper beside it and a package."""
    root = tmp_path / "project"
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "b.py").write_text("import helper\nfrom pkg import ops\nimport json\n")
    (root / "benchmarks" / "helper.py").write_text("x = 1\n")
    (root / "benchmarks" / "data.bin").write_bytes(b"12")
    (root / "pkg" / "__init__.py").write_text("")
    (root / "pkg" / "ops.py").write_text("from pkg.deep import kernel\n")
    (root / "pkg" / "deep" / "kernel.py").write_text("y = 1\n")
    (root / "unrelated.py").write_text("z = 1\n")
    return Project(root / "benchmarks" / "b.py", root)


def names(project, paths):
    """Of files, within the project."""
    return {str(path.relative_to(project.root)) for path in paths}


def test_a_copy_holds_the_file_and_the_modules_of_the_project_that_it_imports(project, tmp_path):
    """Helpers, whole packages, data by a link; not the standard library, not what is unrelated."""
    copy, stamp = project.freeze(tmp_path / "copy")

    assert copy == tmp_path / "copy" / "benchmarks" / "b.py"
    assert names(project, stamp) == {
        "benchmarks/b.py",
        "benchmarks/helper.py",
        "pkg/__init__.py",
        "pkg/ops.py",
        "pkg/deep/kernel.py",
    }
    assert (copy.parent / "data.bin").read_bytes() == b"12"
    (project.root / "benchmarks" / "helper.py").write_text("x = 2\n")
    assert (copy.parent / "helper.py").read_text() == "x = 1\n"


def test_a_file_that_is_saved_while_it_is_copied_is_copied_again(project, tmp_path, monkeypatch):
    """A copy never holds the text of two moments."""
    helper, ops = project.root / "benchmarks" / "helper.py", project.root / "pkg" / "ops.py"
    copied = []
    copy_file = frozen.shutil.copyfile

    def copyfile(source, target):
        copied.append(Path(source).name)
        if len(copied) == 3:  # helper is copied by now, ops is not
            helper.write_text("x = 22\n")
            ops.write_text("from pkg.deep import kernel  # 22\n")
        return copy_file(source, target)

    monkeypatch.setattr(frozen.shutil, "copyfile", copyfile)
    copy, _ = project.freeze(tmp_path / "copy")
    assert copied.count("helper.py") == 2
    assert "22" in (copy.parent / "helper.py").read_text()
    assert "22" in (tmp_path / "copy" / "pkg" / "ops.py").read_text()


def test_a_file_that_never_holds_still_is_no_version(project, tmp_path, monkeypatch):
    """It is given up rather than copied in pieces."""
    count = iter(range(10_000))
    copy_file = frozen.shutil.copyfile

    def copyfile(source, target):
        (project.root / "benchmarks" / "helper.py").write_text(f"x = {'1' * next(count)}\n")
        return copy_file(source, target)

    monkeypatch.setattr(frozen.shutil, "copyfile", copyfile)
    assert project.freeze(tmp_path / "copy") is None


def test_a_syntax_error_is_told_with_its_line(project, tmp_path):
    """Also one in a helper module."""
    (project.root / "pkg" / "ops.py").write_text("a = 1\ndef f(:\n")
    copy, _ = project.freeze(tmp_path / "copy")
    found = broken(project, copy)
    assert (found.file, found.line) == ("pkg/ops.py", 2)
    assert found.text == "def f(:"


class Editor:
    """A project that is saved, in virtual time."""

    def __init__(self, project, den):
        self.project, self.time = project, ManualTime(NS_PER_S)
        self.saves = Saves(project, den, self.time.now_ns)
        self.count = 0

    def save(self, name="benchmarks/helper.py", text=""):
        """As vim does: a new file takes the old one's name."""
        self.count += 1
        path = self.project.root / name
        part = path.with_suffix(".tmp")
        part.write_text(text or f"x = {self.count + 100}\n")
        part.replace(path)

    def wait(self, seconds):
        """What was taken in this time, looking twenty times a second."""
        taken = []
        for _ in range(round(seconds * 20)):
            self.time.advance(NS_PER_S // 20)
            save = self.saves.look()
            taken += [save] if save is not None else []
        return taken


@pytest.fixture
def editor(project, tmp_path):
    """Somebody who saves, and a watch that takes it in."""
    return Editor(project, tmp_path)


def test_twenty_saves_in_two_seconds_are_one_version(editor):
    """The last of them, once the files hold still."""
    early = []
    for _ in range(20):
        editor.save()
        early += editor.wait(0.1)
    late = editor.wait(1)
    assert early == []
    assert [save.files for save in late] == [("benchmarks/helper.py",)]
    assert "120" in (late[0].path.parent / "helper.py").read_text()


def test_a_helper_module_is_saved_like_the_file(editor):
    """Each save is a version of its own, also of a module deep in a package."""
    editor.save("pkg/deep/kernel.py")
    (first,) = editor.wait(1)
    editor.save("benchmarks/b.py", "import helper\n")
    (second,) = editor.wait(1)
    assert (first.number, second.number) == (1, 2)
    assert first.root != second.root
    assert editor.wait(1) == []


def test_what_is_saved_elsewhere_is_no_version(editor):
    """A module that is not imported, and data, start nothing."""
    editor.save("unrelated.py")
    editor.save("benchmarks/notes.txt", "hello")
    assert editor.wait(1) == []


class Scout:
    """A worker that says what it is told to."""

    def __init__(self, *records, loss=None):
        self.loss, self.records, self.is_closed = loss, list(records), False

    def start(self):
        """Nothing runs."""

    def drain(self):
        """All of it, once."""
        records, self.records = self.records, []
        return records

    def close(self, timeout_s):
        """It is not wanted any more."""
        self.is_closed = True
        return True


def scouted(editor, *scouts):
    """What follows from saves when scouts come back with this."""
    waiting = list(scouts)
    request = WorkRequest(path="b.py", config=RunConfig())
    return Scouted(editor.saves, request, lambda _: waiting.pop(0), editor.time.now_ns)


def looks(editor, found, seconds=1.0):
    """All that is said and all heads within a time."""
    said, heads = [], []
    for _ in range(round(seconds * 20)):
        editor.time.advance(NS_PER_S // 20)
        records, head = found.look()
        said += [r.notice for r in records if isinstance(r, Noted)]
        heads += [head] if head is not None else []
    return said, heads


END = Progress(0, "ended", "max time 0.001 s")


def test_a_version_joins_when_its_scout_has_come_back(editor):
    """It was imported and called once; it bears the number of the save."""
    found = scouted(editor, Scout(END))
    editor.save()
    said, (head,) = looks(editor, found)
    assert [notice.code for notice in said] == ["version saved"]
    assert (head.version.index, head.version.label) == (2, "save 1")
    assert "save-1" in head.request.path


@pytest.mark.parametrize(
    "scout",
    [
        Scout(Fault(0, 2, "b.py:1: ModuleNotFoundError: no module"), END),
        Scout(loss=Loss("SIGSEGV", "signal SIGSEGV")),
    ],
)
def test_a_version_that_cannot_be_imported_is_refused(editor, scout):
    """The old one goes on, and a line says why."""
    found = scouted(editor, scout)
    editor.save()
    said, heads = looks(editor, found)
    assert heads == []
    assert said[-1].code == "version refused"
    assert "Module" in said[-1].evidence["why"] or "SIGSEGV" in said[-1].evidence["why"]


def test_no_scout_is_sent_with_what_is_no_python(editor):
    """The line is shown at once."""
    found = scouted(editor)
    editor.save(text="def f(:\n")
    (notice,), heads = looks(editor, found)
    assert heads == []
    assert notice.evidence["why"].startswith("benchmarks/helper.py:1:")


def test_a_newer_save_takes_the_place_of_one_that_is_being_tried(editor):
    """The older scout is called back, and only the newest version joins."""
    slow, quick = Scout(), Scout(END)
    found = scouted(editor, slow, quick)
    editor.save()
    looks(editor, found)
    editor.save()
    _, (head,) = looks(editor, found)
    assert slow.is_closed
    assert head.version.label == "save 2"


class Given:
    """Saved versions that come when launches have ended."""

    def __init__(self, run, rows):
        self.run, self.rows, self.is_given = run, rows, False

    def look(self):
        """The second head after the second launch."""
        if self.is_given or self.run.duet.launches.done < 2:
            return [], None
        self.is_given = True
        self.run._rows = (self.run._rows[0], self.rows)
        version = Version(0, 2, "newer", "saved")
        return [], Head(version, msgspec.structs.replace(self.run.duet._requests[1], path="n.py"))

    def close(self):
        """Nothing to close."""


def test_a_saved_version_takes_the_heads_place_and_earlier_verdicts_stay():
    """New rows are compared with the same base; what was said of the old ones stands."""
    run = DuetRun(({"a": MS}, {"a": 1.1 * MS}), launches=3, launch_s=0.4, between=0.002)
    run.duet.saves = Given(run, {"a": 0.8 * MS})
    run.duet.start()
    for _ in range(20_000):
        run.records += run.duet.drain()
        if run.duet._is_waiting and run.duet.saves.is_given:
            break
        time.sleep(0.001)
    report = run.duet.launches.report()
    labels = {r.info.bench: r.info.name for r in run.records if isinstance(r, Bench)}
    found = {labels[bench]: versus for bench, versus in report.items()}
    assert found[f"a @{LABELS[1]}"].raw is Answer.SLOWER
    assert found["a @newer"].answer is Answer.FASTER
    assert found["a @newer"].over.launches == 3
    off = [labels[r.bench] for r in run.records if isinstance(r, State) and r.state == "off"]
    assert off == [f"a @{LABELS[1]}"]
    assert run.duet.close(1.0)
