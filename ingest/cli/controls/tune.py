"""`ingest tune`: changes the limits of a running source."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.controls.controlling import named, run_with_access
from ingest.cli.invocation import actor, backends_of_sources, say
from ingest.cli.options import AsJson, DryRun, OneSource
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from ingest.domain.operating.controls import Tuning
    from ingest.operations.control.control_access import ControlAccess


def tune(
    *,
    source: OneSource = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Orders in flight in each process.", metavar="N", min=1)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second over all processes.", metavar="R")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Return to the configured limits.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change the limits of a running source.

    All workers follow within two seconds: they finish their requests in flight, and continue with the new limits. The change survives
    restarts and applies until `--reset`. Configure the limits as well if they should last.

    Without new limits, the command shows the current change. Sources that share a quota (`upstream.quota`) get the same rate.

    Examples:
    `ingest tune --source shop-de --rate 2` sends two requests per second to a shop.

    `ingest tune --source shop-de --concurrency 5` fetches five orders at the same time in each process.

    `ingest tune --source shop-de --reset` returns to the configured limits.
    """
    from ingest.domain.source_name import chosen_source
    from ingest.operations.control import controls

    if reset and (concurrency is not None or rate is not None):
        raise ConfigError("--reset returns to the configured limits: use it without --concurrency and --rate")
    if source and len(set(source)) > 1:
        raise ConfigError("this command takes one source: give --source once")
    sources = backends_of_sources(None)
    name = chosen_source(source[0] if source else None, sources)
    changes = reset or concurrency is not None or rate is not None

    async def act(access: "ControlAccess") -> "Tuning | None":
        if dry_run or not changes:
            return (await access.read()).tunings.get(name)
        if reset:
            await controls.reset_tuning(access, name, actor())
            return None
        return await controls.tune(access, name, actor(), concurrency=concurrency, rate=rate)

    found = run_with_access(sources, act)
    if dry_run and changes:
        concurrency = None if reset else concurrency or (found.concurrency if found else None)
        rate = None if reset else rate or (found.rate if found else None)
    else:
        concurrency, rate = (None, None) if found is None else (found.concurrency, found.rate)
    if as_json:
        typer.echo(json.dumps({"source": name, "concurrency": concurrency, "rate": rate, "dry_run": dry_run}))
        return
    limits = [f"concurrency {concurrency:,}"] if concurrency is not None else []
    limits += [f"rate {rate:g}/s"] if rate is not None else []
    words = ", ".join(limits) or "the configured limits"
    typer.echo(f"{named(name)} {'would have' if dry_run and changes else 'has'} {words}")
    others = [each for each in controls.sharing_quota(sources, name) if each != name]
    if rate is not None and others:
        say(f"the rate applies to {', '.join(others)} as well, because they share a quota")
