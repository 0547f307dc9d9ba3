"""The reference pages of the command line, written from the help of the commands."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from ingest.cli import GROUPS, app
from ingest.cli.options import TIME

_WIDTH = 100
_NOTE = "Generated from the help of the commands by `make reference`. `ingest COMMAND --help` shows the same text."
_ABOUT = {
    "Servers": "The processes of a deployment, and the probe of their containers.",
    "Status and checks": "Commands that show the state of the queues, the set-up and manual changes.",
    "Control": "Commands that change running workers without a restart. "
    "[Pause and limit a source](../../operate/pause.md) shows when to use them.",
    "Orders": "Commands for single orders, dead letters, retries and long jobs.",
    "Missing orders": "Commands that compare your shop's list of orders with the stored orders.",
    "Set-up": "Commands that you run before the first start, and after a change of the configuration.",
    "Trials and benchmarks": "Commands that start their own servers. They need the extra `embedded` or `bench`.",
}
_INDEX = """\
# Command line

{note}

## Options of every command

| option | description |
|---|---|
{options}

Options and arguments may be in any order. Settings are [variables, `.env` and secret
files](../settings.md); `ingest config` shows the values in use.

## Times

Write a time in ISO 8601, such as `2026-10-01` or `2026-10-01T08:00:00+02:00`, or as an age, such as
`30m`, `2h` or `7d`. A time without an offset is in UTC.

## Output

Data goes to stdout, and logs, questions and progress go to stderr. Commands with `--json` print
JSON for programs. On a terminal, a long command shows a progress bar, and elsewhere it logs its
progress.

A command that changes many entries asks for confirmation. Without a terminal, it changes nothing
unless you add `--yes`.

## Exit codes

| code | meaning |
|---|---|
| 0 | Success. |
| 1 | The command failed, or a check found an error. The last line on stderr contains the reason. |
| 2 | Wrong use or configuration. Nothing was changed. |
| 130 | Interrupted with Ctrl-C. |
| 143 | Ended by SIGTERM. |

The servers (`worker`, `api`, `relay`, `exporter`) shut down cleanly on SIGTERM and Ctrl-C, and then
exit with
0. A reader that closes the pipe early, as in `ingest status | head`, is not an error. If the exit
   code 1 of a command has a special meaning, its help describes it.

## Commands
{lists}"""
# Written out in the help, because it stands there without context.
_TIME = (TIME, "A [time](index.md#times).")


def command_pages() -> Iterator[tuple[str, str]]:
    """The name and the text of each page."""
    root: Any = get_command(app)
    yield "index", _index(root)
    for title, names in GROUPS.items():
        sections = (section for name in names for section in _sections(root.get_command(None, name), f"ingest {name}"))
        yield _name(title), "\n".join([f"# {_title(title)}", "", *_wrapped(_ABOUT[title]), *sections]) + "\n"


def _title(group: str) -> str:
    return f"Commands: {group[0].lower()}{group[1:]}"


def _name(title: str) -> str:
    return title.lower().replace(" ", "-")


def _index(root: Any) -> str:
    lists: list[str] = []
    for title, names in GROUPS.items():
        lists += ["", f"### {title}", "", "| command | purpose |", "|---|---|"]
        for name in names:
            for path, command in _leaves(root.get_command(None, name), f"ingest {name}"):
                page = f"{_name(title)}.md#{path.replace(' ', '-')}"
                lists.append(f"| [`{path}`]({page}) | {_cell(_first(command.help))} |")
    options = [f"| `{parameter.opts[0]}` | {_cell(parameter.help)} |" for parameter in root.params]
    options.append("| `--help` | Show the help of the command. |")
    return _INDEX.format(note="\n".join(_wrapped(_NOTE)), options="\n".join(options), lists="\n".join(lists) + "\n")


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The command and the commands below it that do something."""
    if not hasattr(command, "list_commands") or command.params or command.invoke_without_command:
        yield path, command
    for name, below in _below(command):
        yield from _leaves(below, f"{path} {name}")


def _below(command: Any) -> Iterator[tuple[str, Any]]:
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield name, command.get_command(None, name)


def _sections(command: Any, path: str) -> Iterator[str]:
    yield f"\n## {path}\n"
    for paragraph in _plain(command.help).split("\n\n"):
        yield from _paragraph(paragraph)
        yield ""
    if not hasattr(command, "list_commands"):
        yield f"Usage: `{' '.join([path, *_pieces(command)])}`"
    if options := [parameter for parameter in command.params if parameter.param_type_name == "option"]:
        yield "\n| option | default | description |\n|---|---|---|"
        for parameter in options:
            yield f"| {_spelling(parameter)} | {_default(parameter)} | {_cell(parameter.help)}{_limits(parameter)} |"
    if command.examples:
        yield "\nExamples:\n"
        for paragraph in command.examples.split("\n\n"):
            yield from _wrapped("- " + " ".join(paragraph.split()), "  ")
    for name, below in _below(command):
        yield from _sections(below, f"{path} {name}")


def _paragraph(text: str) -> Iterator[str]:
    # A list, or lines that belong apart, keep their lines.
    if text.lstrip().startswith(("- ", "* ", "| ")):
        yield from text.splitlines()
    else:
        yield from _wrapped(" ".join(text.split()))


def _pieces(command: Any) -> Iterator[str]:
    if any(parameter.param_type_name == "option" for parameter in command.params):
        yield "[OPTIONS]"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = parameter.metavar or parameter.name.upper()
            piece = shown if parameter.required else f"[{shown}]"
            yield piece if parameter.nargs == 1 else f"{piece}..."


def _spelling(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else " " + (parameter.metavar or _value(parameter)).replace("|", "\\|")
    return ", ".join(f"`{name}{value}`" for name in names)


def _value(parameter: Any) -> str:
    info = parameter.type_descriptor.parameter_info
    return "TEXT" if info.min is None and info.max is None else "N"


def _default(parameter: Any) -> str:
    default = getattr(parameter, "default", None)
    if parameter.is_flag or default is None or default == "" or callable(default) or parameter.multiple:
        return "required" if parameter.required else ""
    return f"`{getattr(default, 'value', default)}`"


def _limits(parameter: Any) -> str:
    info = parameter.type_descriptor.parameter_info
    low, high = (_number(value) for value in (info.min, info.max))
    if low and high:
        return f" {low} to {high}."
    return f" At least {low}." if low else f" At most {high}." if high else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _first(help_text: str) -> str:
    return _plain(help_text).partition("\n")[0].strip()


def _plain(help_text: str | None) -> str:
    """The help with single backticks, also if standard output is not a terminal."""
    return re.sub(r"`` `([^`]+)` ``", r"`\1`", help_text or "").strip()


def _cell(text: str | None) -> str:
    return " ".join(_plain(text).split()).replace(*_TIME).replace("|", "\\|")


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
