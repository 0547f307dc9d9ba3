"""One call of a command: its settings, its servers, its user, and messages to the user.

Commands import this module first, and their help needs no settings. So this module imports them when a command runs.
"""

import os
import pwd
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from ingest.cli.terminal.width import wrapped
from ingest.domain.errors import ConfigError

DEBUG = "--debug"

if TYPE_CHECKING:
    from ingest.operations.audit import Reader
    from ingest.operations.backends import Backends
    from ingest.settings import Settings


def start(**overrides: Any) -> "Settings":
    """Read the settings, with the command line's overrides, set up the logs, and warn about unknown settings."""
    from ingest.settings import load_settings, names_in_dot_env, unknown_settings
    from ingest.telemetry.logs import begin_logs

    settings = load_settings(**overrides)
    level = "debug" if DEBUG in sys.argv else settings.log_level
    begin_logs(settings.log_format, level, unknown_settings(os.environ, names_in_dot_env()))
    return settings


def start_with_source(names: Sequence[str] | None, **overrides: Any) -> "Settings":
    """As `start`, for a command about one source. Return the settings of the named source, or of the only one.

    Raises:
        ConfigError: no source has this name, a name is needed, or there are several. The message lists the names.
    """
    from ingest.domain.source_name import chosen_source
    from ingest.settings.source_file import source_names, source_settings

    settings = start(**overrides)
    chosen = chosen_source(_only(names), source_names(settings))
    return source_settings(settings, [chosen])[chosen]


def start_with_sources(names: Sequence[str] | None, **overrides: Any) -> "dict[str, Settings]":
    """As `start`, for a command about several sources. Return the settings of the named sources, or of all, by name.

    Raises:
        ConfigError: no source has one of the names. The message lists the names.
    """
    from ingest.domain.source_name import chosen_sources
    from ingest.settings.source_file import source_names, source_settings

    settings = start(**overrides)
    chosen = chosen_sources(names, source_names(settings))
    sources = source_settings(settings, chosen)
    return {name: sources[name] for name in chosen}


def backends_of_source(names: Sequence[str] | None) -> "Backends":
    """As `start_with_source`, for a command that only needs the servers and the queue, and no secret of the source."""
    from ingest.domain.source_name import chosen_source
    from ingest.operations.backends import Backends
    from ingest.settings.source_file import source_names, source_settings_without_secrets

    settings = start()
    name = chosen_source(_only(names), source_names(settings))
    return Backends.of(source_settings_without_secrets(settings, [name])[name])


def _only(names: Sequence[str] | None) -> str | None:
    named = dict.fromkeys(names or ())
    if len(named) > 1:
        raise ConfigError(f"this command takes one source: give --source once, not for {', '.join(named)}")
    return next(iter(named), None)


def backends_of_sources(names: Sequence[str] | None) -> "dict[str, Backends]":
    """As `start_with_sources`, for a command that only needs the servers and the queues, and no secret of a source."""
    from ingest.domain.source_name import chosen_sources
    from ingest.operations.backends import Backends
    from ingest.settings.source_file import source_names, source_settings_without_secrets

    settings = start()
    chosen = chosen_sources(names, source_names(settings))
    sources = source_settings_without_secrets(settings, chosen)
    return {name: Backends.of(sources[name]) for name in chosen}


def backends_to_show(names: Sequence[str] | None) -> "tuple[list[Backends], str]":
    """As `backends_of_sources`, for a view, without sources that cannot be used. Their errors are to be reported after the view."""
    from ingest.domain.source_name import chosen_sources
    from ingest.operations.backends import Backends
    from ingest.settings.source_file import source_names, usable_source_settings
    from ingest.settings.source_values import values_without_secrets

    settings = start()
    chosen = chosen_sources(names, source_names(settings))
    found, problems = usable_source_settings(settings, chosen, values_without_secrets)
    errors = "; ".join(problems.values())
    if not found:
        raise ConfigError(errors)
    return [Backends.of(found[name]) for name in chosen if name in found], errors


def backends_to_change(names: Sequence[str] | None, *, dry_run: bool) -> "dict[str, Backends]":
    """As `backends_of_sources`, for a command that changes something. With several sources, a name is required.

    Raises:
        ConfigError: a name is needed, or no source has one of the names. The message lists the names.
    """
    if names or dry_run:
        return backends_of_sources(names)
    backends = backends_of_source(None)
    return {backends.source: backends}


def holder() -> str:
    """The name of this process, as the holder of a job's lease."""
    return f"{socket.gethostname()}-{os.getpid()}"


def actor() -> str:
    """The user for the audit log: `cli:` and the Unix user."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"  # in a container, the user may be nameless


def reader(command: str) -> "Reader":
    """The user of a command that reads documents, for the audit log."""
    from ingest.operations.audit import Reader

    return Reader(actor(), f"ingest {command}")


def say(line: str, indent: str = "") -> None:
    """Print a message for the user on stderr, because stdout is for data. Wrapped lines begin with `indent`."""
    sys.stderr.write(wrapped(line, sys.stderr, indent) + "\n")


def is_confirmed(question: str, *, change: str) -> bool:
    """Whether the user confirms a change. No input is a no.

    Args:
        question: the change in a sentence.
        change: the same as a verb with its object, for the error: `replay 2 dead letters`.

    Raises:
        ConfigError: if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(
            f"this would {change}, and there is no terminal to ask for confirmation: add --yes. Nothing was changed"
        )
    # On stderr, as stdout is for data. Typer's own prompt writes to both.
    sys.stderr.write(wrapped(f"{question} Continue? [y/N]", sys.stderr) + " ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def require(context: typer.Context, needed: str, *options: str) -> None:
    """Reject options that do nothing without another one.

    Args:
        context: of the command.
        needed: the other option, such as `--watch`.
        options: the names of their parameters.

    Raises:
        typer.BadParameter: the command line has one of them.
    """
    for given in _given(context, options):
        raise typer.BadParameter(f"{given} requires {needed}")


def refuse(context: typer.Context, when: str, *options: str) -> None:
    """Reject options that are only used in another case. See `require`. `when` names the other case."""
    for given in _given(context, options):
        raise typer.BadParameter(f"{given} is only used {when}")


def _given(context: typer.Context, options: Sequence[str]) -> Iterator[str]:
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in options and source is not None and source.name == "COMMANDLINE":
            yield parameter.opts[0]
