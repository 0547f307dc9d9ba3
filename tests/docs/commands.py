"""The `ingest` commands in a text, parsed by the real command line without being executed."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import PurePath
from typing import Any

import typer
from typer.main import get_command

from ingest.cli import app

_SHORTENED = "…"
# Programs in front of a command, which may take their own options.
_LAUNCHERS = {
    "docker",
    "kubectl",
    "podman",
    "sudo",
    "systemd-run",
    "time",
    "timeout",
    "nohup",
    "exec",
    "env",
    "watch",
    "setpriv",
}
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
# Values that the text of a page does not contain: the reader's files and the shell's substitutions.
_OF_THE_READER = re.compile(r"does not exist|no such file|\$", re.IGNORECASE)


def commands_in(script: str) -> Iterator[list[str]]:
    """The arguments of each `ingest` in a shell script.

    Raises:
        ValueError: the script has an open quote.
    """
    text = re.sub(r"(?m)(^|(?<=\s))#.*$", "", script).replace("\\\n", " ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if not set(word) <= set(";&|()<>\n"):
            words.append(word)
            continue
        if word in {"<", ">", ">>"}:
            words.append(word)
            continue
        found = _arguments(_without_redirections(words))
        if found is not None:
            yield found
        words = []


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in {"<", ">", ">>"}:
            next(rest, None)
            if kept and kept[-1] in {"1", "2"}:
                kept.pop()
        else:
            kept.append(word)
    return kept


def _arguments(words: list[str]) -> list[str] | None:
    """The arguments of `ingest` in a simple command, or None for another program."""
    words = words[len([*takewhile(_ASSIGNMENT.fullmatch, words)]) :]
    words = words[1:] if words[:1] == ["$"] else words
    if not words:
        return None
    if PurePath(words[0]).name == "ingest":
        return words[1:]
    if words[0] not in _LAUNCHERS:
        return None
    if "ingest" in words:
        return words[words.index("ingest") + 1 :]
    if words[:2] == ["docker", "compose"] and "run" in words:
        after = iter(words[words.index("run") + 1 :])
        service = next((word for word in after if not word.startswith("-") and not _ASSIGNMENT.fullmatch(word)), "")
        return [*after] if service in {"worker", "migrate", "api", "relay", "exporter"} else None
    return None


@cache
def _program() -> Any:
    return get_command(app)


def problem_of(arguments: list[str], *, complete: bool = True) -> str | None:
    """The error of the command line for these arguments, or None.

    Args:
        arguments: after the word `ingest`.
        complete: whether they are a whole command, which lacks no argument.
    """
    complete = complete and not any(_SHORTENED in argument for argument in arguments)
    arguments = [argument for argument in arguments if _SHORTENED not in argument and argument != "--debug"]
    if set(arguments) & {"--help", "--version"}:
        arguments = [argument for argument in arguments if argument not in {"--help", "--version"}]
        complete = False
    command, context, name = _program(), None, "ingest"
    try:
        while hasattr(command, "resolve_command"):
            context = command.make_context(name, [*arguments], parent=context, resilient_parsing=True)
            rest = [*context._protected_args, *context.args]
            if not rest:
                return None
            context.resilient_parsing = False
            name, command, arguments = command.resolve_command(context, rest)
        if complete:
            command.make_context(name, [*arguments], parent=context)
        else:
            _check_options(command, arguments)
    except typer.TyperException as error:
        message = str(error.format_message())
        known = not message.startswith("No such")
        return None if known and _OF_THE_READER.search(message + " ".join(arguments)) else message
    except typer.Exit:
        return None
    return None


def _check_options(command: Any, arguments: list[str]) -> None:
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for argument in arguments:
        if argument == "--":
            return
        if argument.startswith("--") and argument.partition("=")[0] not in known:
            raise typer.BadParameter(f"No such option: {argument}")
