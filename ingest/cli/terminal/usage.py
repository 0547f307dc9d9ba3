"""Help texts that name values as `--rate N`, mark code without colours, and show examples as lines to copy.

Typer shows code only by colours. Without them, a command could not be distinguished from the sentence around it.
"""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

_CODE = re.compile(r"`([^`]+)`")
# A command, and a sentence that continues it: "`ingest status` shows a table."
_EXAMPLE = re.compile(r"`([^`]+)` (.+)")
# The words of a command. Quoted blanks do not divide them.
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_ABOUT = 4


class Command(TyperCommand):
    """A command with such a help text.

    Attributes:
        examples: paragraphs. Those that begin with a command in backticks become a line to copy with its description.
    """

    examples = ""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments, with the names of their values."""
        return _with_named_values(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The part of the usage line after the command's name: `[OPTIONS] ID...`."""
        arguments = [_usage(parameter) for parameter in self.get_params(ctx) if isinstance(parameter, TyperArgument)]
        return ["[OPTIONS]", *arguments]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, and the examples below it."""
        super().format_help(ctx, formatter)
        _print_examples(self.examples)


class CommandGroup(TyperGroup):
    """A group of commands with such help texts. It has the attributes of `Command`."""

    examples = ""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, with the names of their values."""
        return _with_named_values(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, and the examples below it."""
        super().format_help(ctx, formatter)
        _print_examples(self.examples)


def _print_examples(examples: str) -> None:
    if not examples:
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.print(" Examples:\n", markup=False)
    for paragraph in examples.split("\n\n"):
        text = " ".join(paragraph.split())
        if found := _EXAMPLE.fullmatch(text):
            command, about = found.groups()
            for line in lines_to_copy(command, console.width):
                console.print(f"  {line}", style="bold", markup=False, soft_wrap=True)
            console.print(Padding(Text(about[0].upper() + about[1:], style="dim"), (0, 1, 1, _ABOUT)))
        else:
            console.print(Padding(Text(text), (0, 1, 1, 2)))


def lines_to_copy(command: str, width: int) -> Iterator[str]:
    """The command in lines that a shell reads as one: no line is wider than `width` unless a word is, and no word is divided."""
    line = ""
    for word in _WORD.findall(command):
        if line and len(line) + len(word) + len("   \\ ") > width:
            yield f"{line} \\"
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else word
    yield line


def _with_named_values(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.metavar is None:
            parameter.metavar = _value_of(parameter)
    return parameters


def _value_of(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return ""
    return "TEXT" if option.min is None and option.max is None else "N"


def _usage(argument: TyperArgument) -> str:
    shown = str(argument.metavar) if argument.required else f"[{argument.metavar}]"
    return shown if argument.nargs == 1 else f"{shown}..."


def quote_code(command: Any) -> Any:
    """The command, with help texts that keep their backticks if standard output shows no colours."""
    if sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}:
        return command
    for text in (command, *command.params):
        text.help = text.help and _CODE.sub(r"`` `\1` ``", text.help)
    command.epilog = command.epilog and _CODE.sub(r"`` `\1` ``", command.epilog)
    return command
