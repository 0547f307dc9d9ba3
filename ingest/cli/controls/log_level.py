"""`ingest log-level`: changes the log level of running workers."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.controls.controlling import run_with_access
from ingest.cli.invocation import actor, backends_of_sources
from ingest.cli.options import AsJson, DryRun
from ingest.cli.terminal.text import printable
from ingest.domain.errors import ConfigError
from ingest.domain.operating.controls import ALL_HOSTS, LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingest.domain.operating.controls import LevelChange
    from ingest.operations.control.control_access import ControlAccess


def log_level(
    level: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(LOG_LEVELS)}.", metavar="LEVEL", hidden=True)
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="Only the workers on this host. Defaults to all.", metavar="HOST")] = "",
    reset: Annotated[bool, typer.Option("--reset", help="Return to INGEST_LOG_LEVEL.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change the log level of running workers.

    LEVEL is debug, info, warning or error. The workers follow within seconds. The change survives restarts and applies until `--reset`. A level for a host takes precedence
    over the level for all hosts. Without a level, the command shows the changed levels.

    Examples:
    `ingest log-level debug --host web1` logs more on one host.

    `ingest log-level warning` logs less on all hosts.

    `ingest log-level --reset` returns to the configured level on all hosts without a separate level.
    """
    from ingest.operations.control import controls

    if level is not None and reset:
        raise ConfigError("--reset returns to the configured level: use it without a level")
    chosen = next((each for each in LOG_LEVELS if each == (level or "").lower()), None)
    if level is not None and chosen is None:
        raise ConfigError(f"{printable(level, 64)!r} is not a log level: use one of {', '.join(LOG_LEVELS)}")

    async def act(access: "ControlAccess") -> "Mapping[str, LevelChange]":
        if (chosen is not None or reset) and not dry_run:
            await controls.set_log_level(access, chosen, actor(), host)
        return (await access.read()).log_levels

    found = run_with_access(backends_of_sources(None), act)
    if dry_run and (chosen is not None or reset):
        wanted = f"at {chosen}" if chosen else "at their configured level"
        report = {"host": host, "level": chosen, "dry_run": True}
        typer.echo(json.dumps(report) if as_json else f"{_hosts(host)} would log {wanted}")
        return
    if as_json:
        for name, each in found.items():
            typer.echo(json.dumps({"host": name, "level": each.level, "since": each.since.isoformat(), "by": each.by}))
        return
    if not found:
        typer.echo("all workers log at their configured level")
    for name, each in found.items():
        typer.echo(f"{_hosts(name)} log at {each.level}")


def _hosts(name: str) -> str:
    return "all other workers" if name == ALL_HOSTS else f"the workers on {printable(name, 100)}"
