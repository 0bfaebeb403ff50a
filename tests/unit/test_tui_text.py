import os
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.style import Style

from usv_tui.tui import text
from usv_tui.tui.look import make_look, wants_ascii

PLAIN = Style()
BOLD = Style(bold=True)
ANY = st.text(max_size=60)


def look(**changes):
    """The default look, or a changed one."""
    options = {"is_ansi": True, "is_dark": True, "ascii_only": False, "no_color": False}
    return make_look({}, **(options | changes))


@given(ANY)
@example("a\x1b[2Jb\x07")
@example("one\ntwo\r\tthree")
@example("\u202eevil\u2066")
def test_nothing_of_a_users_text_reaches_the_terminal_as_a_control(words):
    """A name or log line holds no control, bidi or line-breaking character once it is cleaned."""
    assert all(c.isprintable() for c in text.clean(words))


def test_brackets_are_text():
    """A name with brackets is shown as it was written; there is no markup."""
    assert text.clean("matmul[N=512] f[dtype=bf16] a[/b] [red]x") == (
        "matmul[N=512] f[dtype=bf16] a[/b] [red]x"
    )


@given(st.lists(st.tuples(ANY.map(text.clean), st.sampled_from([PLAIN, BOLD]))), st.integers(1, 90))
@example([("漢字漢字", PLAIN)], 5)
def test_a_line_has_exactly_the_asked_width(runs, width):
    """Whatever is put into a line, wide characters too, it takes as many cells as asked for."""
    line = text.strip(runs, width, PLAIN)

    assert sum(text.width_of(segment.text) for segment in line) == width
    assert line.cell_length == width


def test_neighbours_of_one_style_share_one_segment():
    """Each style run costs an escape sequence, so equal neighbours are merged."""
    line = text.strip([("a", BOLD), ("b", BOLD), ("c", PLAIN)], 6, PLAIN)

    assert [(s.text, s.style) for s in line] == [("ab", BOLD), ("c   ", PLAIN)]


@given(ANY.map(text.clean), st.integers(0, 40))
def test_clipped_text_never_exceeds_its_cells(words, width):
    """Cutting at the end or in the middle keeps within the cells."""
    assert text.width_of(text.clip(words, width, "…")) <= width
    assert text.width_of(text.clip_middle(words, width, "…")) <= width


def test_a_name_is_cut_in_the_middle():
    """Rows of one benchmark differ at the end of their names, so the end stays."""
    assert text.clip_middle("attention[seq=4096,kind=flash]", 16, "…") == "attenti…d=flash]"


@given(ANY.map(text.clean), st.integers(2, 40))
def test_wrapping_loses_no_word(words, width):
    """Wrapped lines fit, and together they hold all characters but blanks."""
    lines = text.wrap(words, width)

    assert all(text.width_of(line) <= max(width, 2) for line in lines)
    assert "".join("".join(lines).split()) == "".join(words.split())


@given(ANY)
def test_ascii_mode_shows_ascii_only(words):
    """On a terminal without Unicode even a user's text is ASCII."""
    assert look(ascii_only=True).text(words).isascii()
    assert look(ascii_only=True).own("±0.5 % → µs ≥ ²…").isascii()


def test_ascii_is_chosen_by_locale_and_terminal():
    """A non-UTF-8 locale or the Linux console gets ASCII; an unset locale does not."""
    assert wants_ascii({"LC_ALL": "C", "TERM": "xterm"})
    assert wants_ascii({"LANG": "de_DE.ISO-8859-1"})
    assert wants_ascii({"TERM": "linux", "LANG": "en_US.UTF-8"})
    assert not wants_ascii({"LANG": "en_US.UTF-8", "TERM": "xterm"})
    assert not wants_ascii({"LC_ALL": "", "LC_CTYPE": "C.UTF-8", "LANG": "C"})
    assert not wants_ascii({})


@pytest.mark.parametrize(
    ("set_to", "is_ascii"),
    [
        ({"LANG": "C"}, True),
        ({"LC_ALL": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "en_US.UTF-8"}, False),
        ({}, False),
    ],
)
def test_the_users_locale_rules_and_not_what_python_makes_of_it(set_to, is_ascii):
    """An interpreter that starts under C sets a UTF-8 locale in its own environment."""
    kept = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_CTYPE", "LANG")}
    ask = "from usv_tui.tui.look import wants_ascii; print(wants_ascii())"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env=kept | {"TERM": "xterm-256color"} | set_to,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(is_ascii)


def test_without_colour_no_style_has_one():
    """NO_COLOR: attributes only."""
    plain = look(no_color=True)
    styles = [getattr(plain, n) for n in ("base", "dim", "good", "bad", "warn", "info", "bar")]

    assert all(style.color is None and style.bgcolor is None for style in styles)
    assert plain.series == (Style(),)


def test_a_series_keeps_its_colour():
    """The colour of a name does not depend on what else was asked since; others differ."""
    one = look()
    names = [f"kernel[{i}]" for i in range(5)]
    first = {name: one.of_series(name) for name in names}

    assert {name: one.of_series(name) for name in reversed(names)} == first
    assert len({str(style) for style in first.values()}) == 5


def test_all_themes_give_a_look():
    """Every theme of Textual's, light or dark, gives readable text: fore and background differ."""
    from textual.theme import BUILTIN_THEMES

    for theme in BUILTIN_THEMES.values():
        variables = theme.to_color_system().generate()
        made = make_look(
            variables, is_ansi=theme.ansi, is_dark=theme.dark, ascii_only=False, no_color=False
        )
        for style in (made.base, made.dim, made.good, made.bad, made.warn, made.info):
            assert style.color is None or style.color != style.bgcolor
