import re

import pytest

from usv_tui.cli import demo, doctor, export, lie, listing, options
from usv_tui.errors import UsageError


def parse(*argv):
    """The options of a run."""
    return options.run_parser().parse_args(["file.py", *argv])


def complaint(parser, *argv):
    """The one line about a command line that makes no sense."""
    with pytest.raises(UsageError) as caught:
        parser.parse_args(list(argv))
    text = str(caught.value)
    assert "\n" not in text
    assert int(caught.value.exit_code) == 2
    return text


def test_a_file_is_all_that_is_needed():
    """The defaults: device and timer by themselves, until stopped, saved, on the screen."""
    args = parse()

    assert (args.file, args.device, args.timer, args.cache, args.pace) == (
        "file.py",
        "auto",
        "auto",
        "warm",
        "steady",
    )
    assert (args.iters, args.max_time, args.until, args.inner, args.seed) == (None,) * 5
    assert not any((args.headless, args.no_save, args.isolate, args.no_telemetry, args.markdown))
    assert (args.warmup, args.target_window, args.window, args.fps) == (10.0, None, 1000, 4.0)


def test_selections_add_up():
    """Several `-k` are all kept, in order."""
    assert parse("-k", "a", "-k", "b[N=1]").select == ["a", "b[N=1]"]


@pytest.mark.parametrize(("text", "value"), [("auto", None), ("1", 1), ("64", 64)])
def test_calls_a_window(text, value):
    """`--inner` takes a count or `auto`."""
    assert parse("--inner", text).inner == value


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--iters", "0"),
        ("--iters", "-3"),
        ("--iters", "2.5"),
        ("--iters", "many"),
        ("--inner", "0"),
        ("--max-time", "0"),
        ("--max-time", "-1"),
        ("--max-time", "nan"),
        ("--max-time", "inf"),
        ("--max-time", "1e300"),
        ("--warmup", "1e300"),
        ("--row-timeout", "1e300"),
        ("--iters", "9" * 30),
        ("--seed", "9" * 30),
        ("--seed", "-" + "9" * 30),
        ("--lock", "9" * 30),
        ("--max-time", "soon"),
        ("--warmup", "-0.1"),
        ("--warmup", "inf"),
        ("--target-window", "0"),
        ("--window", "0"),
        ("--flush-mb", "0"),
        ("--fps", "0"),
        ("--fps", "60"),
        ("--timer", "sundial"),
        ("--cache", "lukewarm"),
        ("--seed", "x"),
        ("--seed", "1.5"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_option(option, value):
    """Every number and choice is checked at once: the line names the option and the value."""
    text = complaint(options.run_parser(), "file.py", option, value)

    assert option in text
    assert value in text
    assert "usv-tui --help" in text


def test_a_warm_up_of_nothing_is_allowed():
    """`--warmup 0` leaves it out."""
    assert parse("--warmup", "0").warmup == 0


@pytest.mark.parametrize(
    ("argv", "word"),
    [(["file.py", "--itres", "3"], "--itres"), (["a.py", "--as", "sute"], "suite")],
)
def test_a_wrong_command_line_is_one_line(argv, word):
    """A misspelt option and a misspelt value are each named."""
    assert word in complaint(options.run_parser(), *argv)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["file.py", "--headless"], ("", ["file.py", "--headless"])),
        (["--headless", "file.py"], ("", ["--headless", "file.py"])),
        (["list", "file.py"], ("list", ["file.py"])),
        (["demo"], ("demo", [])),
        (["export", "a.usv", "--to", "csv"], ("export", ["a.usv", "--to", "csv"])),
        (["./list"], ("", ["./list"])),
        ([], ("", [])),
    ],
)
def test_the_first_word_is_a_command_or_the_file(argv, command):
    """A command's name as the first word selects it; everything else is a run."""
    assert options.split_command(argv) == command


@pytest.mark.parametrize("command", options.COMMANDS)
def test_every_command_has_a_parser_or_its_own_front(command):
    """The epilog of the help names every command that there is."""
    text = options.run_parser().format_help()
    assert re.search(rf"usv-tui \[?{command}\b|\(also: {command}\)", text)


def test_export_takes_a_session_and_a_form():
    """`export` writes JSON to stdout unless told; another form is refused."""
    args = export.parser().parse_args(["a.usv"])

    assert (args.session, args.to, args.output) == ("a.usv", "json", "-")
    assert "xml" in complaint(export.parser(), "a.usv", "--to", "xml")


def test_the_ungated_mode_is_not_advertised():
    """What exists only to show what the gate is worth does not stand in the help."""
    assert parse("--no-gate").no_gate
    assert "--no-gate" not in options.run_parser().format_help()


@pytest.mark.parametrize(
    ("parser", "argv", "name", "value"),
    [
        (listing.parser, ["file.py", "-k", "a"], "select", ["a"]),
        (demo.parser, ["power-cap", "--iters", "5"], "iters", 5),
        (demo.parser, ["--list"], "show_list", True),
        (lie.parser, ["file.py", "--device", "cpu"], "device", "cpu"),
        (doctor.parser, ["--json"], "json", True),
    ],
)
def test_each_command_takes_its_own_options(parser, argv, name, value):
    """A command's options are parsed, and one that it does not have is one line."""
    assert getattr(parser().parse_args(argv), name) == value
    assert "--warp" in complaint(parser(), *argv, "--warp")
