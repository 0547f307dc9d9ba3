"""`ingest source check`: checks the external API, the mapping and the files of each source."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.options import AsJson, checked_id
from ingest.cli.terminal.findings import colours_on, lines_of
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.width import width_of
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.orders.order import Order
    from ingest.services.source_check import SourceCheck
    from ingest.settings import Settings

# Sources that are checked concurrently.
_CONCURRENT = 10
_LONGEST_VALUE = 200


def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sources. Defaults to all.", metavar="NAME", hidden=True)
    ] = None,
    *,
    order_id: Annotated[
        str | None,
        typer.Option("--id", "--order-id", help="Request this order of the source. Defaults to a known order."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for each server.", min=0.5, max=300)] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Fetch, map and show an order of each source.

    It checks that orders can be fetched and mapped, and changes nothing.

    It checks the keys in the sources file, connects to the external API, tries the credential with one order, maps the order and
    shows it. It also loads the transform and reads the secrets of the webhook. Without `--id`, it requests a queued or stored order.

    The exit code is 1 if a check fails, and 2 if the sources file cannot be read.

    Examples:
    `ingest source check` checks all sources.

    `ingest source check shop-de --id 1001` checks one source with an order that exists.

    `ingest source check --json | jq -r 'select(.failed) | .source'` lists the sources with an error. With `--json`, each line
    is a JSON object.
    """
    from ingest.domain.source_name import chosen_sources
    from ingest.settings import load_settings
    from ingest.settings.source_file import source_kinds, source_names
    from ingest.telemetry.logs import setup_logs

    settings = load_settings()
    # Errors are in the findings, and the log of the parts that found them would repeat them.
    setup_logs(settings.log_format, "error")
    chosen, kinds = chosen_sources(names, source_names(settings)), source_kinds(settings)
    if order_id is not None and len(chosen) > 1:
        raise typer.BadParameter("an order belongs to one source: name the source", param_hint="'--id'")
    checks = run_interruptible(_check(settings, chosen, checked_id(order_id, "--id"), timeout))
    with standard_output() as stream:
        for each in checks:
            kind = kinds.get(each.source)
            if as_json:
                print(printable_json(json.dumps(_report(each, kind), ensure_ascii=False)), file=stream)
            else:
                is_coloured = colours_on(sys.stdout)
                stream.writelines(f"{line}\n" for line in _lines(each, kind, width_of(stream), is_coloured=is_coloured))
    raise typer.Exit(1 if any(each.has_failed for each in checks) else 0)


async def _check(
    settings: "Settings", names: "Sequence[str]", order_id: str | None, within: float
) -> "list[SourceCheck]":
    from ingest.services.source_check import check_source

    limit = asyncio.Semaphore(_CONCURRENT)

    async def one(name: str) -> "SourceCheck":
        async with limit:
            return await check_source(settings, name, order_id, os.environ, within)

    return await asyncio.gather(*map(one, names))


def _report(check: "SourceCheck", kind: str | None) -> dict[str, Any]:
    findings = [asdict(each) for each in check.findings]
    row = _row(check.order) if check.order is not None else None
    return {"source": check.source, "kind": kind, "failed": check.has_failed, "findings": findings, "row": row}


def _lines(check: "SourceCheck", kind: str | None, width: int, *, is_coloured: bool) -> Iterator[str]:
    """The name of the source, its findings, and below them the order."""
    if check.source:
        yield f"source {check.source}" + (f", {kind}" if kind else "")
    for finding in check.findings:
        yield from lines_of(finding, width, is_coloured=is_coloured)
    if check.order is not None:
        for name, value in _row(check.order).items():
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
            yield f"  {name:<12} {'-' if value is None else printable(str(shown), _LONGEST_VALUE)}"


def _row(order: "Order") -> dict[str, Any]:
    from ingest.operations.stored_orders.mapped_row import row_of

    return row_of(order)
