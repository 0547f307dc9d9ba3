"""What several commands share: reading the settings, and saying so when one looks mistyped."""

import os
import sys
from typing import Any

from ingest.cli.terminal import wrapped
from ingest.settings import Settings, load_settings, names_in_dot_env, unknown_settings
from ingest.telemetry.logs import get_logger, setup_logs


def start(**overrides: Any) -> Settings:
    """Read the settings, with the command line's overrides, and set up the logs."""
    settings = load_settings(**overrides)
    setup_logs(settings.log_format, settings.log_level)
    for line in unknown_settings(os.environ, names_in_dot_env()):
        get_logger("settings").warning("unknown_setting", problem=line)
    return settings


def say(line: str) -> None:
    """A line for the person at the terminal; data goes to stdout, this to stderr."""
    sys.stderr.write(wrapped(line, sys.stderr) + "\n")
