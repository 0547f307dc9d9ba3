"""How help texts look: they name the values of options (`N`, `TEXT` or the choices), and show where a command ends.

Typer 0.29 shows Python's types instead (`<bool>`, `<list[str]>`), and double brackets around an argument. It shows code by colours
alone: without them, an example could not be told from the sentence around it.
"""

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_CODE = re.compile(r"`([^`]+)`")
_WORDS = {int: "N", float: "NUMBER", str: "TEXT"}


class Command(TyperCommand):
    """A command with such a help text."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments, with readable names."""
        return _named(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name in its usage line: `[OPTIONS] ID...`."""
        arguments = [_usage(parameter) for parameter in self.get_params(ctx) if isinstance(parameter, TyperArgument)]
        return ["[OPTIONS]", *arguments]


class Group(TyperGroup):
    """A group of commands with such help texts."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, with readable names."""
        return _named(super().get_params(ctx))


def quote_code(command: Any) -> Any:
    """The command, with help texts that keep their backticks if standard output shows no colours."""
    if sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}:
        return command
    for text in (command, *command.params):
        text.help = text.help and _CODE.sub(r"`` `\1` ``", text.help)
    command.epilog = command.epilog and _CODE.sub(r"`` `\1` ``", command.epilog)
    return command


def _named(parameters: Iterable[Any]) -> list[Any]:
    named = list(parameters)
    for parameter in named:
        if isinstance(parameter, TyperArgument):
            # Its name and its help are enough.
            parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # noqa: ARG005
        elif isinstance(parameter, TyperOption) and parameter.metavar is None:
            parameter.metavar = _word(parameter)
    return named


def _word(option: Any) -> str | None:
    if option.is_flag or option.count:
        return ""
    about = getattr(option, "type_descriptor", None)  # since Typer 0.27 or so
    if about is None:
        return None
    if about.is_choice:
        return "|".join(str(getattr(choice, "value", choice)) for choice in about.choices or ())
    return "PATH" if about.is_path else _WORDS.get(about.annotation, "TEXT")


def _usage(argument: Any) -> str:
    name = argument.metavar or str(argument.name).upper()
    shown = name if argument.required else f"[{name}]"
    return shown if argument.nargs == 1 else f"{shown}..."
