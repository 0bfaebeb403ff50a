"""`usv-tui completion`: the script that a shell needs to complete commands, options and values.

It is made from the parsers themselves, so that it knows what they know.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from usv_tui.cli import options
from usv_tui.cli.options import COMMANDS, Parser

SHELLS = ("bash", "zsh", "fish")
_WORDS_OF_HELP = 60


class Option(NamedTuple):
    """An option as a shell completes it."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]


class Command(NamedTuple):
    """What may follow a command; files may, always."""

    options: tuple[Option, ...]
    words: tuple[str, ...]


def parser() -> Parser:
    """`usv-tui completion`."""
    made = Parser(
        prog="usv-tui completion",
        description="What a shell needs to complete usv-tui's commands and options, on stdout.",
        epilog='bash: eval "$(usv-tui completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, '
        "behind compinit; fish: usv-tui completion fish > "
        "~/.config/fish/completions/usv-tui.fish",
    )
    made.add_argument("shell", choices=SHELLS)
    return made


def script(shell: str) -> str:
    """The whole script for a shell."""
    known = {name: _of(name) for name in ("", *COMMANDS)}
    makers: Mapping[str, Callable[[Mapping[str, Command]], str]] = {
        "bash": _bash,
        "zsh": _zsh,
        "fish": _fish,
    }
    return makers[shell](known)


def _of(command: str) -> Command:
    parser_ = _parser(command)
    found, words = [], list(_words(command))
    for action in parser_._actions:  # noqa: SLF001  argparse has no other list of them
        values = tuple(map(str, action.choices or ()))
        if not action.option_strings:
            words += values
        elif action.help != argparse.SUPPRESS:
            text = (action.help or "").replace("%%", "%")[:_WORDS_OF_HELP]
            takes = action.nargs != 0
            found.append(Option(tuple(action.option_strings), text, takes, values))
    return Command(tuple(found), tuple(dict.fromkeys(words)))


def _parser(command: str) -> argparse.ArgumentParser:
    from usv_tui.cli import (
        ab,
        clocks,
        compare,
        demo,
        doctor,
        explain,
        export,
        history,
        judge,
        lie,
        listing,
        replay,
        serve,
        starter,
    )

    if command in ("", "run"):
        return options.run_parser()
    if command in ("open", "show", "replay", "watch"):
        return replay.parser(command)
    rooms = {"list": listing, "init": starter, "completion": None}
    named = (ab, clocks, compare, demo, doctor, explain, export, history, judge, lie, serve)
    rooms |= {room.__name__.rpartition(".")[2]: room for room in named}
    room = rooms[command]
    made: argparse.ArgumentParser = parser() if room is None else room.parser()
    return made


def _words(command: str) -> Sequence[str]:
    """Words without a list in the parser."""
    if command == "demo":
        from usv_tui.sim import SCENARIOS

        return tuple(SCENARIOS)
    if command == "explain":
        from usv_tui.report.wording.codes import CODES

        return tuple(CODES)
    if command == "init":
        from usv_tui.cli import starter

        return starter.SHIPPED
    return ()


def _valued(known: Mapping[str, Command]) -> dict[str, tuple[str, ...]]:
    """Options with a list of values; where commands differ, all of their values."""
    found: dict[str, tuple[str, ...]] = {}
    for command in known.values():
        for option in command.options:
            for name in option.names:
                if option.values:
                    found[name] = tuple(dict.fromkeys((*found.get(name, ()), *option.values)))
    return found


def _bash(known: Mapping[str, Command]) -> str:
    values = "\n".join(
        f'    {name}) COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word")); return ;;'
        for name, words in _valued(known).items()
    )
    cases = "\n".join(
        f'    {name or "*"}) options="{_names(command)}"; words="{" ".join(command.words)}" ;;'
        for name, command in _default_last(known)
    )
    return f"""\
_usv_tui() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} options words
  case $before in
{values}
  esac
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  ((COMP_CWORD == 1)) && words="{" ".join(COMMANDS)}"
  [[ $word == -* ]] && words=$options
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ $word == -* ]] || COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _usv_tui usv-tui"""


def _zsh(known: Mapping[str, Command]) -> str:
    values = "\n".join(
        f"    {name}) compadd -- {' '.join(words)}; return ;;"
        for name, words in _valued(known).items()
    )
    cases = "\n".join(
        f"    {name or '*'}) options=({_described(command)}); "
        f"completions=({' '.join(command.words)}) ;;"
        for name, command in _default_last(known)
    )
    return f"""\
#compdef usv-tui
_usv_tui() {{
  local -a options completions
  case $words[CURRENT-1] in
{values}
  esac
  case $words[2] in
{cases}
  esac
  ((CURRENT == 2)) && completions=({" ".join(COMMANDS)})
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
  else
    compadd -- $completions
    _files
  fi
}}
compdef _usv_tui usv-tui"""


def _fish(known: Mapping[str, Command]) -> str:
    lines = [f"complete -c usv-tui -n __fish_use_subcommand -a '{' '.join(COMMANDS)}'"]
    for name, command in known.items():
        when = f"__fish_seen_subcommand_from {name}"
        if not name:
            when = f"not __fish_seen_subcommand_from {' '.join(COMMANDS)}"
        if command.words:
            lines.append(f"complete -c usv-tui -n '{when}' -a '{' '.join(command.words)}'")
        lines += [f"complete -c usv-tui -n '{when}' {_fish_option(o)}" for o in command.options]
    return "\n".join(lines)


def _fish_option(option: Option) -> str:
    named = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
    value = f"-x -a '{' '.join(option.values)}'" if option.values else "-r" * option.takes_value
    return f"{' '.join(named)} {value} -d {_quoted(option.help)}".replace("  ", " ")


def _names(command: Command) -> str:
    return " ".join(name for option in command.options for name in option.names)


def _described(command: Command) -> str:
    return " ".join(
        _quoted(f"{name}:{re.sub('[:]', ' ', option.help)}")
        for option in command.options
        for name in option.names
    )


def _quoted(text: str) -> str:
    return "'" + re.sub(r"['\\\s]+", " ", text) + "'"


def _default_last(known: Mapping[str, Command]) -> list[tuple[str, Command]]:
    return sorted(known.items(), key=lambda item: item[0] == "")
