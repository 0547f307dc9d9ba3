"""Help texts that name values as `--rate N`, and mark code without colours.

Typer shows code only by colours. Without them, an example could not be distinguished from the sentence around it.
"""

import os
import re
import sys
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

_CODE = re.compile(r"`([^`]+)`")


class Command(TyperCommand):
    """A command with such a help text."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments, with the names of their values."""
        return _with_named_values(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The part of the usage line after the command's name: `[OPTIONS] ID...`."""
        arguments = [_usage(parameter) for parameter in self.get_params(ctx) if isinstance(parameter, TyperArgument)]
        return ["[OPTIONS]", *arguments]


class CommandGroup(TyperGroup):
    """A group of commands with such help texts."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, with the names of their values."""
        return _with_named_values(super().get_params(ctx))


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
