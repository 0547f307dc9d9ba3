"""What all commands need: the settings, the logs, and messages to the user."""

import os
import sys
from typing import Any

import typer

from ingest.cli.terminal.width import wrapped
from ingest.settings import Settings, load_settings, names_in_dot_env, unknown_settings
from ingest.telemetry.logs import begin_logs


def start(**overrides: Any) -> Settings:
    """Read the settings, with the command line's overrides, set up the logs, and warn about unknown settings."""
    settings = load_settings(**overrides)
    begin_logs(settings.log_format, settings.log_level, unknown_settings(os.environ, names_in_dot_env()))
    return settings


def say(line: str, indent: str = "") -> None:
    """Print a message for the user on stderr, because stdout is for data. Wrapped lines begin with `indent`."""
    sys.stderr.write(wrapped(line, sys.stderr, indent) + "\n")


def require(context: typer.Context, needed: str, *options: str) -> None:
    """Refuse options that do nothing without another one.

    Args:
        context: of the command.
        needed: the other option, such as `--watch`.
        options: the names of their parameters.

    Raises:
        typer.BadParameter: the command line has one of them.
    """
    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"--{option} requires {needed}")
