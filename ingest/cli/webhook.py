"""`ingest webhook`: shows the sources of webhooks, or what a request of one of them would announce."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import start
from ingest.cli.options import AsJson
from ingest.cli.terminal.input import read_document
from ingest.domain.errors import ConfigError, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multidict import CIMultiDict

    from ingest.api.webhooks.sources import WebhookSource


COMMANDS = ("check",)


def webhook() -> None:
    """Check the sources of webhooks.

    Examples:
    `ingest webhook check` shows the sources that INGEST_WEBHOOKS names, or what is wrong with the file.

    How to receive webhooks: https://order-ingest.example/docs/how-to/webhooks.md
    """


def check(
    *,
    file: Annotated[
        str | None, typer.Argument(help="The file of sources. [INGEST_WEBHOOKS]", metavar="FILE", hidden=True)
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="The source that a request is sent to.")] = None,
    body: Annotated[Path | None, typer.Option(metavar="FILE", help="Body of the request. `-` is stdin.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header of the request.")] = None,
    at: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When the request came, Unix time. Defaults to now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the sources of webhooks, or a request of one of them. Queues nothing.

    FILE declares the sources. The default is INGEST_WEBHOOKS.

    The exit code is 1 if the request would be refused, and 2 if a source cannot be used.

    Examples:
    `ingest webhook check` checks the file that INGEST_WEBHOOKS names, and shows its sources.

    `ingest webhook check webhooks.toml --json` prints those of another file as JSON.

    `ingest webhook check --source shop --body body.json --header 'X-Shopify-Topic: orders/create' --header
    'X-Shopify-Hmac-Sha256: …'` shows the order in a request, or why the request would be rejected.
    """
    from ingest.api.webhooks.load import load_sources

    if (source is None) != (body is None):
        raise typer.BadParameter("--source and --body need each other")
    settings = start(webhooks=file)
    if settings.webhooks is None:
        raise ConfigError("there are no sources of webhooks: set INGEST_WEBHOOKS, or name a file")
    sources = load_sources(settings.webhooks)
    if source is None or body is None:
        _print_sources(sources, as_json=as_json)
        return
    named = {found.name: found for found in sources}
    if source not in named:
        raise typer.BadParameter(
            f"no source is called {source!r}; the file has {', '.join(named)}", param_hint="'--source'"
        )
    content = read_document(body, settings.api_body_limit, "body", "INGEST_API_BODY_LIMIT")
    _print_request(named[source], _headers(header or []), content, time.time() if at is None else at, as_json=as_json)


def _headers(lines: "Sequence[str]") -> "CIMultiDict[str]":
    from multidict import CIMultiDict

    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("write it as `Name: value`", param_hint="'--header'")
        headers.add(name.strip(), value.strip())
    return headers


def _print_request(source: "WebhookSource", headers: Any, body: bytes, now: float, *, as_json: bool) -> None:
    from ingest.api.webhooks.reception import Refused, read_webhook

    try:
        announced = read_webhook(source, headers, body, now)
    except Refused as refused:
        if as_json:
            typer.echo(json.dumps({"result": refused.result, "code": refused.code, "detail": refused.detail}))
            raise typer.Exit(1) from None
        raise UserError(f"refused as {refused.code}: {refused.detail}") from None
    found: dict[str, Any] = {"result": "ignored"}
    if announced is not None:
        found = {
            "result": "accepted",
            "order_id": announced.announcement.order_id,
            "has_document": announced.announcement.document is not None,
            "idempotency_key": announced.idempotency_key,
        }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, value in found.items():
        typer.echo(f"{name:<16} {'-' if value is None else value}")


def _print_sources(sources: "Sequence[WebhookSource]", *, as_json: bool) -> None:
    rows = [_described(source) for source in sources]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for number, row in enumerate(rows):
        if number:
            typer.echo()
        for name, value in row.items():
            text = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name:<16} {'-' if text in {None, ''} else text}")


def _described(source: "WebhookSource") -> dict[str, Any]:
    profile = source.profile
    return {
        "source": source.name,
        "path": source.path,
        "keys": len(source.secrets.keys),
        "event": str(profile.event) if profile.event is not None else None,
        "events": list(profile.events or ()),
        "ignored": list(profile.ignore),
        "order_id": str(source.order_id),
        "document": str(source.document) if source.document is not None else None,
        "delivery_id": str(profile.delivery_id) if profile.delivery_id is not None else None,
        "tolerance": source.tolerance if profile.has_timestamp else None,
        "express": "on" if source.declared.express else "off",
        "coalesce": source.declared.coalesce,
    }
