"""`ingest webhook`: shows the webhooks, or the order that a request of one of them would enqueue."""

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

    from ingest.api.webhooks.webhook import Webhook
    from ingest.settings import Settings


COMMANDS = ("check",)


def webhook() -> None:
    """Check webhooks.

    Examples:
    `ingest webhook check` shows the webhooks in the file that INGEST_WEBHOOKS names, or in the sources file.

    How to receive webhooks: https://order-ingest.example/docs/enqueue/webhooks.html
    """


def check(
    *,
    file: Annotated[
        str | None, typer.Argument(help="The file of webhooks. [INGEST_WEBHOOKS]", metavar="FILE", hidden=True)
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="The source, or the webhook in the file of webhooks.")
    ] = None,
    body: Annotated[Path | None, typer.Option(metavar="FILE", help="Body of the request. `-` is stdin.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="'NAME: VALUE'", help="A header of the request.")] = None,
    at: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="When the request came, Unix time. Defaults to now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the webhooks, or a request of one of them.

    It enqueues nothing.

    FILE declares the webhooks. The default is INGEST_WEBHOOKS, or the tables [sources.NAME.webhook] of INGEST_SOURCES.

    The exit code is 1 if the request would be rejected, and 2 if a webhook cannot be used.

    Examples:
    `ingest webhook check` shows all webhooks.

    `ingest webhook check --source shop-de` shows the webhook of a source.

    `ingest webhook check webhooks.toml --json` prints the webhooks of another file as JSON.

    `ingest webhook check --source shop --body body.json --header 'X-Shopify-Topic: orders/create' --header
    'X-Shopify-Hmac-Sha256: …'` shows the order in a request, or why the request would be rejected.
    """
    if source is None and body is not None:
        raise typer.BadParameter("--body needs --source")
    settings = start(webhooks=file)
    named, problems = _webhooks(settings, file)
    if source is not None and source not in named.keys() | problems.keys():
        known = ", ".join([*named, *problems])
        raise typer.BadParameter(f"no webhook is called {source!r}; there are {known}", param_hint="'--source'")
    if source in problems:
        raise ConfigError(problems[source])
    if source is None or body is None:
        _print_webhooks([*named.values()] if source is None else [named[source]], as_json=as_json)
        if source is None and problems:
            raise ConfigError("; ".join(problems.values()))
        return
    content = read_document(body, settings.api_body_limit, "body", "INGEST_API_BODY_LIMIT")
    _print_request(named[source], _headers(header or []), content, time.time() if at is None else at, as_json=as_json)


def _webhooks(settings: "Settings", file: str | None) -> "tuple[dict[str, Webhook], dict[str, str]]":
    """Read the webhooks from their file, or from the sources file, and the error of each other source.

    Raises:
        ConfigError: there is none, or the file cannot be used.
    """
    from ingest.api.webhooks.load import load_webhooks
    from ingest.api.webhooks.source_webhook import webhook_of
    from ingest.settings.source_file import usable_source_settings
    from ingest.settings.source_values import values_without_secrets

    if settings.webhooks is not None and (file is not None or settings.sources is None):
        return {webhook.name: webhook for webhook in load_webhooks(settings.webhooks)}, {}
    named: dict[str, Webhook] = {}
    sources, problems = usable_source_settings(settings, read=values_without_secrets)
    for name, each in sources.items():
        try:
            webhook = webhook_of(each)
        except ConfigError as error:
            problems[name] = str(error)
        else:
            named |= {} if webhook is None else {name: webhook}
    if named or problems:
        return named, problems
    raise ConfigError(
        "there are no webhooks: set INGEST_WEBHOOKS, write a table [sources.NAME.webhook] into the sources file, or name a file"
    )


def _headers(lines: "Sequence[str]") -> "CIMultiDict[str]":
    from multidict import CIMultiDict

    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter("write it as `Name: value`", param_hint="'--header'")
        headers.add(name.strip(), value.strip())
    return headers


def _print_request(webhook: "Webhook", headers: Any, body: bytes, now: float, *, as_json: bool) -> None:
    from ingest.api.webhooks.reception import Refused, read_webhook

    try:
        announced = read_webhook(webhook, headers, body, now)
    except Refused as refused:
        if as_json:
            typer.echo(json.dumps({"result": refused.result, "code": refused.code, "detail": refused.detail}))
            raise typer.Exit(1) from None
        raise UserError(f"refused as {refused.code}: {refused.detail}") from None
    found: dict[str, Any] = {"result": "ignored"}
    if announced is not None:
        ids = [announcement.order_id for announcement in announced.announcements]
        found = {
            "result": "accepted",
            **({"order_id": ids[0]} if webhook.declared.order_ids is None else {"order_ids": ids}),
            "has_document": announced.announcements[0].document is not None,
            "idempotency_key": announced.idempotency_key,
        }
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, value in found.items():
        text = ", ".join(value) if isinstance(value, list) else value
        typer.echo(f"{name:<16} {'-' if text is None else text}")


def _print_webhooks(webhooks: "Sequence[Webhook]", *, as_json: bool) -> None:
    rows = [_described(webhook) for webhook in webhooks]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for number, row in enumerate(rows):
        if number:
            typer.echo()
        for name, value in row.items():
            text = ", ".join(value) if isinstance(value, list) else value
            typer.echo(f"{name:<16} {'-' if text in {None, ''} else text}")


def _described(webhook: "Webhook") -> dict[str, Any]:
    profile = webhook.profile
    return {
        "webhook": webhook.name,
        "path": webhook.path,
        "keys": len(webhook.secrets.keys),
        "event": str(profile.event) if profile.event is not None else None,
        "events": list(profile.events or ()),
        "ignored": list(profile.ignore),
        "order_id": str(webhook.order_id),
        "document": str(webhook.document) if webhook.document is not None else None,
        "event_time": str(profile.event_time) if profile.event_time is not None else None,
        "challenge": webhook.challenge.parameter if webhook.challenge is not None else None,
        "delivery_id": str(profile.delivery_id) if profile.delivery_id is not None else None,
        "tolerance": webhook.tolerance if profile.has_timestamp else None,
        "express": "on" if webhook.declared.express else "off",
        "coalesce": webhook.declared.coalesce,
    }
