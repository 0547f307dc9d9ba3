"""`ingest mapping`: shows the row that a mapping makes of a document, or the error."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import say, start, start_with_source
from ingest.cli.options import AsJson, OneSource, checked_id
from ingest.cli.terminal.input import read_document
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.width import console_on
from ingest.domain.errors import ConfigError, Fault, UserError
from ingest.domain.orders.clean_json import clean_json
from ingest.domain.orders.order import InvalidDocument, SkippedDocument
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping, MappedDocument
    from ingest.settings import Settings


COMMANDS = ("check",)


def mapping() -> None:
    """Check mappings.

    A mapping turns documents of another shape into orders.

    Examples:
    `ingest mapping check --sample order.json` shows the row that the mapping makes of a document, or the error.

    The format of a mapping: https://order-ingest.example/docs/reference/mapping.html
    """


def check(
    *,
    source: OneSource = None,
    sample: Annotated[Path | None, typer.Option(metavar="FILE", help="The document. `-` is stdin.")] = None,
    order_id: Annotated[
        str | None, typer.Option("--id", help="Fetch this order. With --sample, the document has to be of this order.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Fetch from this URL with {order_id} instead of the configured one.")
    ] = None,
    mapping: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The mapping, instead of the configured one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the row that a mapping makes of a document.

    It shows the error if there is none, and stores nothing.

    The exit code is 1 if the document does not fit or cannot be fetched, and 2 if the mapping cannot be used.

    Examples:
    `ingest mapping check --sample order.json` applies the configured mapping (INGEST_MAPPING) to a document.

    `curl … | ingest mapping check --sample - --mapping shop.toml` tries a mapping on a document from a pipe.

    `ingest mapping check --id 450789469` fetches the order with the configured URL and credentials.

    `ingest mapping check --source shop-de --id 1001` applies the mapping of one of several sources.

    `ingest mapping check --id 17 --url 'https://shop.example/orders/{order_id}' --json` prints the row as JSON.
    """
    if sample is None and order_id is None:
        raise typer.BadParameter("give a document (--sample) or the ID of an order to fetch (--id)")
    if url is not None and sample is not None:
        raise typer.BadParameter("--url is for an order that is fetched, and not for --sample")
    with _naming({"INGEST_MAPPING": mapping and "--mapping", "INGEST_UPSTREAM_URL": url and "--url"}):
        # A document and a mapping of the command line need no source.
        is_complete = not source and mapping is not None and sample is not None
        settings = (
            start(mapping=mapping) if is_complete else start_with_source(source, mapping=mapping, upstream_url=url)
        )
        compiled = _compiled(settings, is_option=mapping is not None)
        if sample is None:
            body = run_interruptible(_fetched(settings, compiled, str(checked_id(order_id, "--id"))))
        else:
            limit = settings.upstream_body_limit
            body = clean_json(read_document(sample, limit, "document", "INGEST_UPSTREAM_BODY_LIMIT"))
    try:
        mapped = compiled.read(body, order_id)
    except SkippedDocument as skipped:
        if as_json:
            typer.echo(json.dumps({"fits": True, "skipped": True}))
        say(f"not stored: {skipped}")
        return
    except InvalidDocument as error:
        if as_json:
            typer.echo(json.dumps({"fits": False, "error": str(error)}))
            raise typer.Exit(1) from None
        raise UserError(f"the document does not fit the mapping: {error}") from None
    _print_mapped(mapped, as_json=as_json)


@contextmanager
def _naming(options: Mapping[str, str | None]) -> Iterator[None]:
    """Name the options that the user has given, in an error about a setting in whose place they are."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            re.sub(r"^(\w+)(?=: )", lambda setting: options.get(setting[1]) or setting[1], str(error))
        ) from error


def _compiled(settings: "Settings", *, is_option: bool) -> "CompiledMapping":
    from ingest.mapping.load import load_mapping
    from ingest.settings.names import naming_keys_of

    # An error in an option does not name the key of the source.
    with naming_keys_of("" if is_option else settings.source):
        if settings.mapping is None:
            raise ConfigError("there is no mapping: set INGEST_MAPPING, or give --mapping")
        return load_mapping(settings.mapping)


async def _fetched(settings: "Settings", mapping: "CompiledMapping", order_id: str) -> bytes:
    from ingest.domain.fetch.exchange import FetchRequest
    from ingest.domain.fetch.result import document_of
    from ingest.sources.documents import with_parts
    from ingest.sources.from_settings import source_of
    from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
    from ingest.upstream.client import UpstreamClient

    seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
    source = source_of(settings, os.environ)
    async with UpstreamClient.open(source.endpoint, source.limits, seconds) as client:
        try:
            upstream = with_parts(client, client, mapping, source.body_limit)
            return document_of(await upstream.fetch(FetchRequest(order_id)))
        except Fault as fault:
            raise UserError(f"cannot fetch order {order_id}: {fault}") from None


def _print_mapped(mapped: "MappedDocument", *, as_json: bool) -> None:
    from ingest.operations.stored_orders.mapped_row import row_of

    row = row_of(mapped.order)
    if as_json:
        result = {"fits": True, "row": row, "total_difference": mapped.total_difference, "omitted": mapped.omitted}
        with standard_output() as stream:
            print(printable_json(json.dumps(result, ensure_ascii=False)), file=stream)
        return
    _print(row)
    for omitted in mapped.omitted:
        say(f"left out: {printable(omitted)}")
    if mapped.total_difference is not None:
        say(f"the document's total minus the sum of the lines is {mapped.total_difference}")


def _print(row: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    columns = Table(box=None, show_header=False, pad_edge=False)
    columns.add_column(style="dim", no_wrap=True)
    columns.add_column(overflow="fold")
    for name, value in row.items():
        if name not in {"lines", "attributes"}:
            columns.add_row(name, Text("-" if value is None else printable(str(value))))
    for name, value in row["attributes"].items():
        columns.add_row(Text(printable(f"attributes.{name}")), Text(printable(_shown(value), 2_000)))
    lines = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("sku", "quantity", "unit_price", "description"):
        lines.add_column(name, justify="right" if name in {"quantity", "unit_price"} else "left", overflow="fold")
    for line in row["lines"]:
        lines.add_row(*(Text("-" if value is None else printable(str(value))) for value in line.values()))
    with standard_output() as stream:
        console_on(stream).print(Group(columns, "", lines))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
