import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import usv_tui
from usv_tui.errors import SuiteError, UsageError
from usv_tui.model import CacheMode
from usv_tui.suite.authoring import benchmark, rotating
from usv_tui.suite.discovery import load_suite, summary
from usv_tui.suite.rows import assemble


@pytest.fixture
def load(tmp_path):
    """Write a benchmark file and load it."""

    def load(source, device="cpu", select=None):
        path = tmp_path / "file.py"
        path.write_text(source)
        return load_suite(path, device, select)

    return load


@pytest.fixture
def complaint(load):
    """The one line that a user sees of a file that cannot be used."""

    def complaint(source, **options):
        with pytest.raises(SuiteError) as caught:
            load(source, **options)
        text = str(caught.value)
        assert "\n" not in text
        assert int(caught.value.exit_code) == 2
        return text

    return complaint


@pytest.fixture
def refusal(load):
    """The one line on what of a file cannot be timed, while the rest of it can."""

    def refusal(source):
        refused = [s for s in load(source).skipped if s.is_refused]
        assert len(refused) == 1
        text = f"{refused[0].name}: {refused[0].reason}"
        assert "\n" not in text
        return text

    return refusal


def names(suite):
    """The names of a suite's rows."""
    return [row.name for row in suite.benchmarks]


def skips(suite):
    """What is not timed, with the reasons."""
    return {item.name: item.reason for item in suite.skipped}


ATTENTION = """
from usv_tui import benchmark

@benchmark(
    params={"seq": [512, 1024], "kind": ["math", "flash"]},
    flops=lambda seq: 2 * seq,
    bytes=lambda seq, kind, device: len(device) * seq,
    baseline={"kind": "math"},
    skip=lambda seq, kind: "too long" if (seq, kind) == (1024, "flash") else None,
)
def attention(seq, kind, device):
    return lambda: (seq, kind, device)
"""

# -- parameters


def test_parameters_make_a_row_for_each_combination(load):
    """The product of the lists, named by the values in the file's order."""
    suite = load(ATTENTION)

    assert names(suite) == [
        "attention[seq=512,kind=math]",
        "attention[seq=512,kind=flash]",
        "attention[seq=1024,kind=math]",
    ]
    assert skips(suite) == {"attention[seq=1024,kind=flash]": "too long"}


def test_a_row_knows_its_work_and_builds_for_the_device(load):
    """Flops and bytes get the parameters they name; the factory gets its own and the device."""
    row = load(ATTENTION).benchmarks[1]

    assert (row.flops, row.bytes) == (1024.0, 1536.0)
    assert row.params == {"seq": 512, "kind": "flash"}
    assert row.build("cuda:1")() == (512, "flash", "cuda:1")


def test_a_list_of_dicts_gives_exactly_these_rows(load):
    """Parameters that belong together are listed together, optional ones included."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark(params=[{'m': 1, 'n': 2}, {'m': 3}])\n"
        "def f(m, n=7):\n    return lambda: (m, n)\n"
    )

    assert names(suite) == ["f[m=1,n=2]", "f[m=3]"]
    assert suite.benchmarks[1].build("cpu")() == (3, 7)


def test_parameters_may_depend_on_the_device(load):
    """Sizes that suit a GPU are not those that suit a CPU."""
    source = (
        "from usv_tui import benchmark\n"
        "@benchmark(params=lambda device: {'n': [1] if device == 'cpu' else [7, 8]})\n"
        "def f(n): return print\n"
    )

    assert names(load(source)) == ["f[n=1]"]
    assert names(load(source, "cuda")) == ["f[n=7]", "f[n=8]"]


def test_values_without_a_short_text_are_numbered(load):
    """A name never holds an address, a line break or half a page; types go by their name."""
    suite = load(
        "from usv_tui import benchmark\n"
        "class Shape: pass\n"
        "a, b = Shape(), Shape()\n"
        "@benchmark(params={'x': [a, b, int, 'y' * 99]})\n"
        "def f(x):\n    return lambda: x\n"
    )

    assert names(suite) == ["f[x=Shape0]", "f[x=Shape1]", "f[x=int]", "f[x=str2]"]
    assert suite.benchmarks[0].params == {"x": "Shape0"}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ("{'x': []}", "f: file.py:2: parameter 'x' has no values (give at least one)"),
        ("{'x': 3}", "f: file.py:2: parameter 'x' is 3 (give a list: {'x': [3]})"),
        ("{'x': 'ab'}", "f: file.py:2: parameter 'x' is 'ab' (give a list: {'x': ['ab']})"),
        ("[]", "f: file.py:2: params has no rows (give at least one)"),
        ("[3]", "f: file.py:2: params has 3 in it (each row is a dict)"),
        ("7", "f: file.py:2: params=7 (give lists of values, or a list of rows)"),
        ("{'y': [1]}", "f: file.py:2: takes no argument 'y' (params gives 'y')"),
        ("{}", "f: file.py:2: needs 'x' (params does not give it)"),
        (
            "{'x': [1], 'device': [2]}",
            "f: file.py:2: a parameter is named 'device' (the run sets the device)",
        ),
        ("lambda device: {'x': device}", "f: file.py:2: parameter 'x' is 'cpu' (give a list: "),
        ("lambda: 1", "f: file.py:2: params raised TypeError: "),
    ],
)
def test_wrong_parameters_are_named_with_file_and_line(complaint, params, text):
    """Each mistake in params is one line that says where and what to do."""
    said = complaint(
        f"from usv_tui import benchmark\n@benchmark(params={params})\ndef f(x):\n    return print\n"
    )

    assert text in said


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("flops=lambda z: 1", "flops needs 'z'"),
        ("flops=lambda x: 1 / 0", "flops raised ZeroDivisionError: division by zero"),
        ("bytes='many'", "bytes is 'many'"),
        ("bytes=-1", "bytes is -1"),
        ("flops=float('nan')", "flops is nan"),
        ("skip=lambda: [][0]", "skip raised IndexError"),
        ("inner=0", "inner=0"),
        ("cache='icy'", "cache='icy' (one of warm, as-is, cold, rotating, rotating(n))"),
        ("baseline={'z': 1}", "baseline names 'z' (no such parameter)"),
        ("baseline={'x': 2}", "baseline {'x': 2} matches no row"),
        ("baseline='g'", "baseline 'g' matches no row"),
        ("baseline=3", "baseline=3"),
    ],
)
def test_wrong_options_are_named_with_file_and_line(complaint, options, text):
    """Each option that makes no sense is one line with the function's place."""
    said = complaint(
        "from usv_tui import benchmark\n"
        f"@benchmark(params={{'x': [1]}}, {options})\n"
        "def f(x):\n    return print\n"
    )

    assert text in said
    assert "file.py:2" in said


def test_skip_may_be_a_reason_or_true(load):
    """A constant reason skips every row; True skips too, but has no better words."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark(skip='broken since Monday')\n"
        "def a(): return print\n"
        "@benchmark(skip=lambda device: device == 'cpu')\n"
        "def b(): return print\n"
        "@benchmark(skip=lambda: '')\n"
        "def c(): return print\n"
    )

    assert names(suite) == ["c"]
    assert skips(suite) == {"a": "broken since Monday", "b": "skipped by its file"}


# -- baselines


def groups(suite):
    """Name, group and whether it is the baseline, of every row."""
    return [(row.name, row.group, row.is_baseline) for row in suite.benchmarks]


def test_a_baseline_stands_for_the_rows_of_its_other_parameters(load):
    """With the kind as baseline, each sequence length is compared with its own."""
    assert groups(load(ATTENTION)) == [
        ("attention[seq=512,kind=math]", "attention[seq=512]", True),
        ("attention[seq=512,kind=flash]", "attention[seq=512]", False),
        ("attention[seq=1024,kind=math]", "attention[seq=1024]", True),
    ]


@pytest.mark.parametrize("spec", ["lambda k: k == 1", "'f[k=1]'", "'f[[]k=1*'", "'*=1]'"])
def test_a_baseline_is_given_by_function_or_name(load, complaint, spec):
    """One baseline for a factory's rows, by a test on the parameters, a name or a glob."""
    source = (
        "from usv_tui import benchmark\n"
        f"@benchmark(params={{'k': [1, 2]}}, baseline={spec})\n"
        "def f(k): return print\n"
    )

    if spec == "'f[[]k=1*'":
        assert "matches no row" in complaint(source)
    else:
        assert groups(load(source)) == [("f[k=1]", "f", True), ("f[k=2]", "f", False)]


def test_another_factory_may_be_the_baseline(load):
    """Rows that name another factory join its group, each compared with the like one."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark(params={'n': [1, 2]})\n"
        "def naive(n): return print\n"
        "@benchmark(params={'n': [1, 2]}, baseline='naive')\n"
        "def fast(n): return print\n"
    )

    assert groups(suite) == [
        ("naive[n=1]", "naive[n=1]", True),
        ("naive[n=2]", "naive[n=2]", True),
        ("fast[n=1]", "naive[n=1]", False),
        ("fast[n=2]", "naive[n=2]", False),
    ]


def test_a_named_group_is_compared_across_factories(load):
    """Factories of one group share the baseline that one of them is."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark(group='copy')\n"
        "def fast(): return print\n"
        "@benchmark(group='copy', baseline=True)\n"
        "def slow(): return print\n"
    )

    assert groups(suite) == [("fast", "copy", False), ("slow", "copy", True)]


def test_a_second_baseline_of_a_group_is_refused(refusal):
    """A ratio has one denominator."""
    said = refusal(
        "from usv_tui import benchmark\n"
        "@benchmark(group='g', baseline=True)\n"
        "def a(): return print\n"
        "@benchmark(group='g', baseline=True)\n"
        "def b(): return print\n"
    )

    assert said == "b: file.py:4: two baselines in group g: a, b"


# -- what counts as a benchmark


def test_only_what_the_file_defines_is_taken_and_the_rest_is_explained(load):
    """Imports, classes, coroutines, generators, needy functions and aliases have reasons."""
    suite = load(
        "from functools import partial\n"
        "from math import sqrt\n"
        "from pathlib import Path\n"
        "from usv_tui import benchmark\n"
        "class bench_class: pass\n"
        "async def bench_async(): pass\n"
        "def bench_generator(): yield 1\n"
        "def bench_needy(n): return print\n"
        "def helper(): pass\n"
        "def _private(): pass\n"
        "bench_partial = partial(helper)\n"
        "def bench_good(): return print\n"
        "bench_alias = bench_good\n"
        "instance = bench_class\n"
        "@benchmark\n"
        "def decorated(device): return print\n"
        "again = decorated\n"
        "@benchmark()\n"
        "async def waits(): pass\n"
        "BENCHMARKS = {'plain': lambda: 1, 'needy': helper.__class__, 'nine': 9,\n"
        "    'twice': decorated, 'args': bench_needy}\n"
    )

    assert names(suite) == ["bench_good", "decorated", "plain"]
    assert skips(suite) == {
        "partial": "no benchmark: imported from functools",
        "sqrt": "no benchmark: imported from math",
        "Path": "no benchmark: imported from pathlib",
        "bench_class": "no benchmark: a class",
        "instance": "no benchmark: another name of bench_class",
        "bench_async": "a coroutine function: calling it runs nothing",
        "waits": "a coroutine function: calling it runs nothing",
        "bench_generator": "a generator function: calling it runs nothing",
        "bench_needy": "needs 'n': give it values with @benchmark(params=...)",
        "helper": "no benchmark: neither decorated with @benchmark nor named bench_...",
        "bench_partial": "no benchmark: an object of type partial, no function of this file",
        "bench_alias": "no benchmark: another name of bench_good",
        "again": "no benchmark: another name of decorated",
        "needy": "needs 'code': wrap it in a lambda",
        "nine": "a int, which cannot be called",
        "twice": "a factory, listed under its own name",
        "args": "needs 'n': wrap it in a lambda",
    }


def test_a_dict_of_callables_is_timed_as_it_is(load):
    """The values of BENCHMARKS are the timed callables themselves."""
    suite = load("BENCHMARKS = {'a/b [1]': lambda: 41}\n")

    assert names(suite) == ["a/b [1]"]
    assert suite.benchmarks[0].build("cpu")() == 41


def test_rows_come_in_the_order_of_the_file(load):
    """Decorated factories and those found by name are listed as they are written."""
    suite = load(
        "from usv_tui import benchmark\n"
        "def bench_a(): return print\n"
        "@benchmark\n"
        "def b(): return print\n"
        "def bench_c(): return print\n"
    )

    assert names(suite) == ["bench_a", "b", "bench_c"]


def test_factories_made_in_a_loop_are_all_found(load):
    """The decorator notes each function, also when one name is bound again and again."""
    suite = load(
        "from usv_tui import benchmark\n"
        "for i in range(3):\n"
        "    @benchmark(name=f'copy{i}')\n"
        "    def copy(i=i): return lambda: i\n"
    )

    assert [(row.name, row.build("cpu")()) for row in suite.benchmarks] == [
        ("copy0", 0),
        ("copy1", 1),
        ("copy2", 2),
    ]


def test_a_factory_wrapped_by_another_decorator_is_found(load):
    """Decorators below @benchmark that keep the function's name change nothing."""
    suite = load(
        "import functools\n"
        "from usv_tui import benchmark\n"
        "def twice(f):\n"
        "    @functools.wraps(f)\n"
        "    def inner(*args, **kw): return f(*args, **kw)\n"
        "    return inner\n"
        "@benchmark(params={'n': [1]})\n"
        "@twice\n"
        "def wrapped(n, device): return lambda: (n, device)\n"
    )

    assert suite.benchmarks[0].build("cpu")() == (1, "cpu")


def test_the_decorated_function_stays_itself():
    """A factory can still be called from a test or a script."""

    def factory():
        return 3

    assert benchmark(factory) is factory
    assert benchmark(inner=2)(factory) is factory


@pytest.mark.parametrize("what", ["class Odd:\n    pass\n", "odd = benchmark(3)\n"])
def test_a_decorated_value_that_is_no_function_costs_that_entry_alone(tmp_path, what):
    """A class or a number under @benchmark is refused by name; the other rows are there."""
    head = "from usv_tui import benchmark\n"
    deco = "@benchmark\n" if what.startswith("class") else ""
    good = "@benchmark\ndef good():\n    return lambda: 1\n"
    path = tmp_path / "f.py"
    path.write_text(head + deco + what + good)

    suite = load_suite(path, "cpu")

    assert [b.name for b in suite.benchmarks] == ["good"]
    [refused] = [skipped for skipped in suite.skipped if skipped.is_refused]
    assert "decorate a function that returns the timed callable" in refused.reason


def test_rotating_names_its_argument():
    """What cannot be rotated through is said by the argument's name."""
    with pytest.raises(TypeError, match="items is 3"):
        rotating(3)


# -- the file


def test_a_file_is_imported_in_the_calling_thread_beside_its_neighbours(tmp_path):
    """The thread that loads is the one that ran the file; its folder is searched last."""
    (tmp_path / "neighbour_of_file.py").write_text("VALUE = 5\n")
    (tmp_path / "late_neighbour.py").write_text("VALUE = 6\n")
    path = tmp_path / "my file.py"
    path.write_text(
        "import threading\nfrom neighbour_of_file import VALUE\nwho = threading.get_ident()\n"
        "def bench_x():\n    from late_neighbour import VALUE as late\n"
        "    return lambda: (VALUE, late, who)\n"
    )
    before = list(sys.path)
    found = []

    def work():
        suite = load_suite(path, "cpu")
        found.append((suite.benchmarks[0].build("cpu")(), threading.get_ident()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    [((value, late, ran_in), thread_id)] = found
    assert (value, late, ran_in) == (5, 6, thread_id)
    assert sys.path == [*before, str(tmp_path)]


def test_a_file_is_run_afresh_each_time_it_is_loaded(load):
    """A second load in the same second sees the new text, and never the byte-code cache."""
    first = load("BENCHMARKS = {'old': print}")
    second = load("BENCHMARKS = {'new': print}")

    assert (names(first), names(second)) == (["old"], ["new"])


def test_classes_of_the_file_can_be_found_by_their_module(load):
    """Pickling and dataclasses look a module up by name: it is there under its own."""
    suite = load(
        "import pickle, dataclasses\n"
        "@dataclasses.dataclass\n"
        "class P:\n    x: int\n"
        "def bench_p(): return lambda: pickle.loads(pickle.dumps(P(3))).x\n"
    )

    assert suite.benchmarks[0].build("cpu")() == 3


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(:\n", ":1: SyntaxError: "),
        ("x = 1\n  y = 2\n", ":2: IndentationError: unexpected indent"),
        ("\nimport no_such_package\n", ":2: ModuleNotFoundError: No module named 'no_such_pack"),
        ("def f():\n    1 / 0\nf()\n", ":2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", ":2: the file called exit while it was imported"),
        ("", ": no benchmarks in it (decorate a function"),
        ("def f(): pass\n", ": no benchmarks in it; not taken: f: neither"),
        ("BENCHMARKS = {}\n", ": no benchmarks in it"),
        ("BENCHMARKS = [print]\n", "BENCHMARKS: file.py: it is a list (make it {name: callable})"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_line(complaint, tmp_path, source, text):
    """Wrong syntax, failing imports and empty files say the file, the line and what to do."""
    said = complaint(source)

    assert said.startswith(str(tmp_path / "file.py"))
    assert text in said


def test_a_failed_import_keeps_the_cause_and_leaves_nothing_behind(complaint, load):
    """The original exception is chained for a traceback; no half module stays registered."""
    before = set(sys.modules)
    with pytest.raises(SuiteError) as caught:
        load("raise RuntimeError('two\\nlines')\n")

    assert isinstance(caught.value.__cause__, RuntimeError)
    assert {name for name in sys.modules if name.startswith("usv_suite_")} <= before


def test_a_keyboard_interrupt_while_importing_is_no_suite_error(load):
    """Ctrl-C stops the program; it is not the file's fault."""
    with pytest.raises(KeyboardInterrupt):
        load("raise KeyboardInterrupt\n")


def test_missing_directory_and_binary_paths_are_told_apart(tmp_path):
    """Each says what the path is, and a directory offers its files."""
    (tmp_path / "a.py").write_text("")
    binary = tmp_path / "elf"
    binary.write_bytes(b"\x7fELF\0\1")
    latin = tmp_path / "latin.py"
    latin.write_bytes(b"x = '\xe9\xff'\n")

    def said(path):
        with pytest.raises(SuiteError) as caught:
            load_suite(path, "cpu")
        return str(caught.value)

    assert said(tmp_path / "no.py") == f"{tmp_path / 'no.py'}: no such file"
    assert said(tmp_path) == f"{tmp_path} is a directory (name one file of it: a.py, latin.py)"
    (tmp_path / "empty").mkdir()
    assert said(tmp_path / "empty") == f"{tmp_path / 'empty'} is a directory (without Python files)"
    assert said(binary) == f"{binary} is not Python source text (give a .py file)"
    assert said(latin) == f"{latin} is not Python source text (give a .py file)"


def test_an_unreadable_file_says_why(tmp_path, monkeypatch):
    """What the operating system says of the file is passed on."""
    path = tmp_path / "f.py"
    path.write_text("")

    def read_bytes(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", read_bytes)

    with pytest.raises(SuiteError, match="Permission denied"):
        load_suite(path, "cpu")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "@benchmark\ndef same(): return 1\n@benchmark(name='same')\ndef b(): return print\n",
            "same: file.py:4: another row has the same name, same (file.py:2)",
        ),
        (
            "@benchmark(params={'x': [1, 1]})\ndef f(x): return print\n",
            "f[x=1]: file.py:2: another row has the same name, f (file.py:2)",
        ),
        ("BENCHMARKS = {1: print, '1': print}\n", "another row has the same name"),
    ],
)
def test_the_second_of_two_equal_names_is_refused(refusal, source, text):
    """Two rows of one name cannot be told apart in any table; the first one is timed."""
    assert text in refusal("from usv_tui import benchmark\n" + source)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("skip=lambda x: 1 / (x - 2) > 0", "f[x=2]: file.py:4: skip raised ZeroDivisionError: "),
        ("skip=lambda x: exit(3) if x == 2 else 0", "f[x=2]: file.py:4: skip raised SystemExit: 3"),
        ("flops=lambda x: x if x == 1 else float('nan')", "f[x=2]: file.py:4: flops is nan"),
        ("bytes=lambda x: 1 if x == 1 else 'a'", "f[x=2]: file.py:4: bytes is 'a'"),
        ("baseline=lambda x: [][x - 1:][0] if x == 2 else 1", "baseline raised IndexError"),
    ],
)
def test_one_option_that_fails_for_one_row_costs_that_row(load, option, text):
    """The other rows of the same declaration, and the rest of the file, are timed."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark\n"
        "def other(): return print\n"
        f"@benchmark(params={{'x': [1, 2]}}, {option})\n"
        "def f(x): return print\n"
    )

    assert names(suite) == ["other", "f[x=1]"]
    assert [s.is_refused for s in suite.skipped if s.name == "f[x=2]"] == [True]
    assert text in "".join(f"{s.name}: {s.reason}" for s in suite.skipped)


@pytest.mark.parametrize(
    "option",
    [
        "name=3",
        "group=[]",
        "params=7",
        "params=lambda: 1 / 0",
        "params=lambda device: exit()",
        "params={'x': [1]}",
        "baseline='nobody'",
        "baseline={'z': 1}",
        "cache='hot'",
        "inner=0",
        "reset=3",
        "check=lambda a, b, z: 1",
        "flop=3",
    ],
)
def test_an_option_that_makes_no_sense_costs_its_benchmark_alone(load, option):
    """It is refused in one line that names it, its place and the option; the rest is timed."""
    suite = load(
        "from usv_tui import benchmark\n"
        f"@benchmark({option})\n"
        "def f(): return print\n"
        "@benchmark\n"
        "def other(): return print\n"
    )

    assert names(suite) == ["other"]
    (refused,) = [s for s in suite.skipped if s.is_refused]
    assert refused.name == "f"
    assert refused.reason.startswith("file.py:2: ")
    assert option.partition("=")[0] in refused.reason or "'x'" in refused.reason


def test_an_option_that_there_is_not_names_the_near_one(refusal):
    """A slip of the pen is mended by the message itself."""
    said = refusal(
        "from usv_tui import benchmark\n"
        "@benchmark(flop=3)\ndef f(): return print\nBENCHMARKS = {'g': print}\n"
    )

    assert said == "f: file.py:2: no option is named 'flop' (flops)"


def test_a_file_whose_rows_are_all_skipped_says_why(complaint):
    """Nothing to do on this device is an error, with the reasons."""
    said = complaint(
        "from usv_tui import benchmark\n"
        "@benchmark(skip=lambda device: f'no {device}')\n"
        "def f(): return print\n"
    )

    assert said.endswith("every benchmark is skipped on cpu (f: no cpu)")


# -- selection


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["flash"], ["attention[seq=512,kind=flash]"]),
        (["seq=512"], ["attention[seq=512,kind=math]", "attention[seq=512,kind=flash]"]),
        (
            ["attention[seq=*kind=math]"],
            ["attention[seq=512,kind=math]", "attention[seq=1024,kind=math]"],
        ),
        (["*512,kind=m???]"], ["attention[seq=512,kind=math]"]),
        (["flash", "seq=1024"], ["attention[seq=512,kind=flash]", "attention[seq=1024,kind=math]"]),
    ],
)
def test_rows_are_selected_by_part_of_the_name_or_glob(load, select, expected):
    """Several patterns add up; brackets in a glob are plain characters."""
    assert names(load(ATTENTION, select=select)) == expected


def test_a_selection_that_matches_nothing_lists_the_names(load):
    """No match is a usage error, and the names are there to copy."""
    with pytest.raises(UsageError) as caught:
        load(ATTENTION, select=["sdpa", "x*"])

    text = str(caught.value)
    assert "matches 'sdpa' or 'x*' (it has attention[seq=512,kind=math], " in text


def test_a_selection_of_skipped_rows_tells_the_reason(complaint):
    """Selecting only what is skipped says why it is skipped."""
    said = complaint(ATTENTION, select=["seq=1024,kind=flash"])

    assert "attention[seq=1024,kind=flash]: too long" in said


# -- set-up


def test_a_factory_that_returns_nothing_to_call_says_so(load):
    """A file that does its work in the factory is told to return it."""
    suite = load("def bench_x(): sum(range(3))\n")

    with pytest.raises(SuiteError) as caught:
        suite.benchmarks[0].build("cpu")

    assert "returned NoneType, which cannot be called (return the function" in str(caught.value)


def test_options_reach_the_row(load):
    """setup, reset, check, inner and cache are the row's own."""
    (row,) = load(
        "from usv_tui import benchmark\n"
        "@benchmark(setup=print, reset=globals, check=max, inner=5, cache='cold')\n"
        "def f(): return print\n"
    ).benchmarks

    assert (row.setup, row.reset, row.check, row.inner, row.cache) == (
        print,
        globals,
        max,
        5,
        CacheMode.COLD,
    )


def test_the_callable_may_bring_its_own_reset(load):
    """Attributes of the returned function know what the factory made, and come first."""
    (row,) = load(
        "from usv_tui import benchmark\n"
        "def fail(): raise AssertionError\n"
        "@benchmark(reset=fail, check=max)\n"
        "def f():\n"
        "    done = []\n"
        "    def step(): return done\n"
        "    step.setup = lambda: done.append('setup')\n"
        "    step.reset = lambda: done.append('reset')\n"
        "    return step\n"
    ).benchmarks

    built = assemble(row, "cpu")
    built.reset()

    assert built.fn() == ["setup", "reset"]
    assert built.check is max


def test_rotations_made_in_the_set_up_are_known(load):
    """The row's badge can tell which inputs are rotated, and so how large they are."""
    (row,) = load(
        "from usv_tui import rotating\n"
        "def bench_r():\n"
        "    following = rotating([memoryview(bytes(100)), memoryview(bytes(50))])\n"
        "    return lambda: following().nbytes\n"
    ).benchmarks

    built = assemble(row, "cpu")

    assert [built.fn() for _ in range(3)] == [100, 50, 100]
    assert [[item.nbytes for item in r.items] for r in built.rotations] == [[100, 50]]


def test_rotating_goes_round_and_refuses_nothing():
    """Items come in turn for ever; an empty set cannot rotate."""
    following = rotating("abc")

    assert [following() for _ in range(4)] == ["a", "b", "c", "a"]
    with pytest.raises(ValueError, match="nothing to rotate"):
        rotating([])


def test_the_summary_lists_rows_and_skips(load):
    """What `usv-tui list` prints: names with what is known of them."""
    rows = summary(load(ATTENTION))

    assert rows[0] == ("attention[seq=512,kind=math]", "baseline, 1024 flop, 1536 B")
    assert rows[-1] == ("attention[seq=1024,kind=flash]", "skipped: too long")


def test_what_nobody_meant_to_be_timed_is_only_counted(load):
    """Imports and helpers do not swamp the list; what BENCHMARKS times is not skipped as well."""
    suite = load(
        "from math import sqrt, sin\n"
        "def helper(): pass\n"
        "def copy(): return 1\n"
        "BENCHMARKS = {'copy': copy, 'root': lambda: sqrt(2), 'broken': 3}\n"
    )

    assert summary(suite) == [
        ("copy", ""),
        ("root", ""),
        ("broken", "not timed: a int, which cannot be called"),
        ("and 3 other names of the file are no benchmarks", ""),
    ]
    assert [name for name, _ in summary(suite, everything=True)] == [
        "copy",
        "root",
        "broken",
        "sqrt",
        "sin",
        "helper",
    ]


# -- files that nobody should have written


HOSTILE = "class R:\n    def __repr__(self): raise RuntimeError('no')\n    __str__ = __repr__\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("group=1", "group=1 (give a text)"),
        ("group={'a': []}", "group={'a': []} (give a text)"),
        ("name=b'x'", "name=b'x' (give a text)"),
        ("name=' '", "name=' ' (give a text)"),
        ("reset=5", "reset=5 (give a function)"),
        ("check='x'", "check='x' (give a function)"),
        ("setup=[]", "setup=[] (give a function)"),
        ("inner=True", "inner=True"),
        ("inner=10**5000", ""),
        ("skip=3.5", "skip=3.5"),
        ("skip=R()", "skip=<R"),
        ("group=R()", "group=<R"),
        ("baseline=R()", "baseline=<R"),
        ("flops=10**400", "flops is 1000"),
        ("flops=10**5000", "flops is <int>"),
        ("flops=R()", "flops is <R"),
        ("cache=R()", "cache=<R"),
        ("reset=lambda z: 0", "reset needs 'z' (the parameters are x, device)"),
        ("check=lambda a, b, c: 0", "check needs 'c' (the parameters are x, device)"),
    ],
)
def test_an_option_that_nothing_can_be_made_of_is_one_line(complaint, load, options, text):
    """Whatever stands there, unhashable, huge or with a repr that raises: a line with the place."""
    source = f"from usv_tui import benchmark\n{HOSTILE}@benchmark(params={{'x': [1]}}, {options})\n"
    if not text:
        load(source + "def f(x):\n    return print\n")
        return
    said = complaint(source + "def f(x):\n    return print\n")

    assert text in said
    assert "file.py:5" in said
    assert len(said) < 300


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ("{'x': range(27_000_000)}", "more than 10,000 rows"),
        ("{'x': itertools.count()}", "more than 10,000 rows"),
        ("({'x': i} for i in itertools.count())", "more than 10,000 rows"),
        ("{'x': range(300), 'y': range(300), 'z': range(300)}", "more than 10,000 rows"),
        ("lambda device: {'x': itertools.cycle([1])}", "more than 10,000 rows"),
        ("{'x': (1 / 0 for _ in [0])}", "cannot be listed: ZeroDivisionError"),
        ("[R()]", "params has <R"),
        ("{'x': R()}", "parameter 'x' is <R"),
        ("{1: [2]}", "a parameter is named 1"),
        ("{'a b': [2]}", "a parameter is named 'a b'"),
    ],
)
def test_parameters_without_end_or_sense_are_one_line(complaint, params, text):
    """Neither memory nor time goes into values that nobody could look at."""
    said = complaint(
        f"import itertools\nfrom usv_tui import benchmark\n{HOSTILE}"
        f"@benchmark(params={params})\ndef f(**kw):\n    return print\n"
    )

    assert text in said


def test_values_whose_text_raises_are_numbered(load):
    """Such a value is named by its type, as any other without a short text."""
    suite = load(
        f"from usv_tui import benchmark\n{HOSTILE}"
        "@benchmark(params={'x': [R(), R()]}, baseline={'x': 3})\n".replace(
            ", baseline={'x': 3}", ""
        )
        + "def f(x):\n    return print\n"
    )

    assert [b.name for b in suite.benchmarks] == ["f[x=R0]", "f[x=R1]"]


def test_a_baseline_whose_equality_raises_matches_nothing(complaint):
    """Tensors and strangers as parameters end in no traceback."""
    said = complaint(
        "from usv_tui import benchmark\nclass E:\n"
        "    def __eq__(self, o): raise ValueError\n    __hash__ = None\n"
        "@benchmark(params={'x': [E()]}, baseline={'x': 1})\ndef f(x):\n    return print\n"
    )

    assert "matches no row" in said


# -- what the engine may rely on


def test_hooks_get_the_parameters_that_they_name(load):
    """setup, reset and check see a row's parameters and the device, as the factory does."""
    suite = load(
        "from usv_tui import benchmark\nseen = []\n"
        "@benchmark(params={'n': [1, 2]}, setup=lambda n: seen.append(('setup', n)),\n"
        "    reset=lambda device, n: seen.append(('reset', device, n)),\n"
        "    check=lambda mine, base, n: mine == base + n)\n"
        "def f(n): return lambda: seen\n"
    )
    second = suite.benchmarks[1]

    built = assemble(second, "cpu")
    built.reset()

    assert built.fn() == [("setup", 2), ("reset", "cpu", 2)]
    assert built.check(3, 1)


def test_rows_of_different_sizes_are_not_compared_unasked(load):
    """A sweep has no baseline but one that is named; variants of one size are compared."""
    suite = load(
        "from usv_tui import benchmark\n"
        "@benchmark(params={'n': [1, 2], 'kind': ['a', 'b']})\n"
        "def f(n, kind): return print\n"
        "@benchmark(params={'n': [1, 2]})\n"
        "def g(n): return print\n"
        "@benchmark(params={'n': [1, 2]}, baseline={'n': 1})\n"
        "def h(n): return print\n"
    )
    groups = {b.name: b.group for b in suite.benchmarks}

    assert groups["f[n=1,kind=a]"] == groups["f[n=1,kind=b]"] != groups["f[n=2,kind=a]"]
    assert groups["g[n=1]"] != groups["g[n=2]"]
    assert groups["h[n=1]"] == groups["h[n=2]"]


def test_every_set_up_starts_from_the_same_seed(load):
    """Rows that draw alike have equal inputs, from torch, numpy and the standard library."""
    suite = load(
        "import random, numpy, torch\nfrom usv_tui import benchmark\n"
        "@benchmark(params={'kind': ['a', 'b']})\n"
        "def f(kind):\n"
        "    drawn = random.random(), numpy.random.rand(), torch.rand(2).tolist()\n"
        "    return lambda: drawn\n"
    )
    one, two = (assemble(b, "cpu", 7).fn() for b in suite.benchmarks)
    other = assemble(suite.benchmarks[0], "cpu", 8).fn()

    assert one == two
    assert one != other


def test_a_process_that_is_spawned_finds_the_file_by_its_name(tmp_path):
    """What a benchmark sends to its own processes is unpickled there by module and name."""
    path = tmp_path / "spawning_file.py"
    path.write_text(
        "import multiprocessing as mp\n"
        "def square(x): return x * x\n"
        "def bench_pool():\n"
        "    def call():\n"
        "        with mp.get_context('spawn').Pool(1) as pool:\n"
        "            return pool.map(square, [3])\n"
        "    return call\n"
    )
    main = tmp_path / "elsewhere" / "main.py"
    main.parent.mkdir()
    main.write_text(
        "from usv_tui.suite.discovery import load_suite\n"
        "if __name__ == '__main__':\n"
        f"    (row,) = load_suite({str(path)!r}, 'cpu').benchmarks\n"
        "    print(row.build('cpu')())\n"
    )
    done = subprocess.run(
        [sys.executable, str(main)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": str(Path(usv_tui.__file__).parents[1])},
        check=False,
    )

    assert "[9]" in done.stdout, done.stderr


def test_a_file_with_the_name_of_a_library_takes_nobody_s_place(tmp_path):
    """`json.py` and `numpy.py` are loaded as they are, and the libraries stay what they were."""
    import json

    for name in ("json", "wave"):
        path = tmp_path / f"{name}.py"
        path.write_text("BENCHMARKS = {'a': lambda: 1}\n")
        assert [b.name for b in load_suite(path, "cpu").benchmarks] == ["a"]

    assert sys.modules["json"] is json
    assert json.dumps(1) == "1"


@pytest.mark.parametrize("shadow", ["torch.py", "numpy.py", "textual/__init__.py"])
def test_a_file_that_hides_a_library_is_refused(tmp_path, shadow):
    """What lies beside a benchmark never takes the place of what measures it."""
    path = tmp_path / shadow
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    bench = tmp_path / "bench.py"
    bench.write_text("BENCHMARKS = {'f': lambda: None}\n")

    with pytest.raises(SuiteError, match=f"{path.name} hides the library") as error:
        load_suite(bench, "cpu")
    assert str(path) in str(error.value)


ROTATES = (
    "from usv_tui import benchmark, rotating\nmade = []\n"
    "@benchmark(cache='rotating(3)')\n"
    "def f():\n    made.append(len(made)); mine = made[-1]\n"
)


def test_a_row_may_ask_for_so_many_sets_of_inputs(load):
    """`rotating(3)` makes three callables of the factory and calls them in turn."""
    (row,) = load(ROTATES + "    return lambda: mine\n").benchmarks

    built = assemble(row, "cpu")

    assert [built.fn() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert row.cache is CacheMode.ROTATING
    assert [len(rotation.items) for rotation in built.rotations] == [3]


def test_the_resets_of_all_sets_are_called(load):
    """Each set's own reset belongs to its callable."""
    source = (
        ROTATES + "    fn = lambda: made\n    fn.reset = lambda: made.append('r')\n    return fn\n"
    )
    (row,) = load(source).benchmarks
    built = assemble(row, "cpu")

    built.reset()

    assert built.fn() == [0, 1, 2, "r", "r", "r"]


def test_a_factory_that_rotates_by_itself_makes_as_many_sets_as_it_says(load):
    """Its own rotation is taken; another number is one clear line."""
    ok = load(ROTATES + "    return rotating([1, 2, 3])\n").benchmarks[0]
    assert len(assemble(ok, "cpu").rotations) == 1

    wrong = load(ROTATES + "    return rotating([1, 2])\n").benchmarks[0]
    with pytest.raises(SuiteError, match=r"rotating\(3\)', and its rotation has 2 sets"):
        assemble(wrong, "cpu")


@pytest.mark.parametrize(
    "text", ["rotating(1)", "rotating(0)", "rotating(x)", "rotating(-2)", "hot"]
)
def test_a_rotation_of_no_sets_is_refused(complaint, text):
    """It takes two sets to rotate."""
    said = complaint(
        f"from usv_tui import benchmark\n@benchmark(cache={text!r})\ndef f():\n    return print\n"
    )

    assert f"cache='{text}'" in said


def test_what_was_asked_for_and_cannot_be_timed_is_told_from_what_is_skipped(load):
    """A value of BENCHMARKS, a bench_ function or a decorated one that runs nothing was meant."""
    suite = load(
        "from usv_tui import benchmark\n"
        "def bench_sized(n): return print\n"
        "async def late(): pass\n"
        "def helper(): return 1\n"
        "@benchmark\n"
        "def factory(): return print\n"
        "@benchmark\n"
        "async def decorated(): return print\n"
        "@benchmark(skip='not here')\n"
        "def skipped(): return print\n"
        "BENCHMARKS = {'number': 5, 'needs': lambda x: x, 'late': late, 'twice': factory,\n"
        "              'fine': lambda: 1}\n"
    )

    refused = {s.name for s in suite.skipped if s.is_refused}
    others = {s.name for s in suite.skipped if not s.is_refused}
    assert refused == {"bench_sized", "number", "needs", "late", "decorated"}
    assert others == {"helper", "twice", "skipped"}


def test_a_pattern_that_matches_nothing_beside_one_that_does_is_told(tmp_path):
    """Each `-k` was asked for."""
    path = tmp_path / "file.py"
    path.write_text("BENCHMARKS = {'a': lambda: 1, 'b': lambda: 1}\n")

    suite = load_suite(path, "cpu", ["a", "typo"])

    assert [b.name for b in suite.benchmarks] == ["a"]
    [refused] = [s for s in suite.skipped if s.is_refused]
    assert (refused.name, refused.reason) == ("-k typo", "no benchmark of this name")


def test_an_import_that_needs_the_main_thread_hints_at_isolation(complaint):
    """Signal handlers can be set under --isolate, where the file has the main thread."""
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(
            complaint, "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        ).result()

    assert "file.py:2: ValueError: signal only works in main thread" in said
    assert said.endswith("(with --isolate the benchmarks have one)")


def test_a_file_that_changes_the_directory_is_built_beside_itself(tmp_path, monkeypatch):
    """A factory still finds its neighbours, and the rows stand as they do in the file."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "lazy_neighbour.py").write_text("def f():\n    return 1\n")
    (tmp_path / "here" / "moves.py").write_text(
        "import os\nfrom usv_tui import benchmark\n"
        "def bench_first():\n    from lazy_neighbour import f\n    return f\n"
        "@benchmark()\ndef second():\n    return lambda: None\n"
        f"os.chdir({str(tmp_path)!r})\n"
    )
    monkeypatch.chdir(tmp_path / "here")

    suite = load_suite("moves.py", "cpu")

    assert [b.name for b in suite.benchmarks] == ["bench_first", "second"]
    assert suite.benchmarks[0].build("cpu")() == 1
