"""Asks the person at the terminal whether to make a change."""

import sys

from ingest.cli.terminal.width import wrapped
from ingest.domain.errors import ConfigError


def is_confirmed(question: str, *, change: str) -> bool:
    """Whether the user confirms. No input is a no.

    Args:
        question: the change in a sentence.
        change: the same as a verb with its object, for the error: `replay 2 dead letters`.

    Raises:
        ConfigError: if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(
            f"this would {change}, and there is no terminal to ask for confirmation: add --yes; nothing was changed"
        )
    # On stderr, as stdout is for data. Typer's own prompt writes to both.
    sys.stderr.write(wrapped(f"{question} Continue? [y/N]", sys.stderr) + " ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
