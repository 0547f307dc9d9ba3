"""The reference page of the settings, written from their models."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from ingest.settings import PREFIX, Settings
from ingest.settings.types import LONGEST

_INTRODUCTION = """\
# Settings

You configure every command by environment variables that begin with `INGEST_`. `ingest config`
shows the values in use and where each comes from. Passwords and tokens are masked.

Generated from the code by `make reference`.

## Where settings come from

If a setting is in several places, the first of these counts:

1. an environment variable,
2. a file that an environment variable names, such as `INGEST_POSTGRES_DSN_FILE=/run/secrets/dsn`,
3. the file `.env` in the working directory,
4. a file that `.env` names.

Every setting can come from a file: add `_FILE` to its name. Use this for secrets. Workers [read the
files of secrets and certificates again](../connect/credentials.md#rotate-a-secret-or-a-certificate)
when they change.

An invalid value stops the start with one line and exit code 2. An unknown name is only a warning,
because the prefix may be in use elsewhere.

## Values

A duration is in seconds, or has a unit: `90`, `90s`, `5m`, `2h` or `30d`. Sizes are bytes. A switch
is `on` or `off`. An empty cell in the column *default* means that the setting is not set.

With several shops, the [sources file](sources.md) replaces the settings that describe one source.
"""
# Topics in the order of the page: the beginnings of their names, and an introduction.
_TOPICS: dict[str, tuple[tuple[str, ...], str]] = {
    "Connections": (
        ("redis_", "postgres_"),
        "[Redis](../deploy/redis.md) and [PostgreSQL](../deploy/postgresql.md) describe the servers.",
    ),
    "Sources and queue": (
        ("sources", "stream", "partitions", "group", "backlog_limit"),
        "[Several shops](../connect/several-shops.md) shows how to divide a deployment.",
    ),
    "External API": (
        ("upstream_url", "upstream_method", "upstream_body", "upstream_headers", "upstream_client"),
        "[Connect your own API](../connect/your-api.md) shows a complete example.",
    ),
    "Credentials of the external API": (
        ("upstream_token", "upstream_auth", "upstream_user", "upstream_password", "upstream_oauth2"),
        "[Credentials](../connect/credentials.md) describes each form.",
    ),
    "TLS of the external API": (("upstream_ca_file", "upstream_cert_file", "upstream_key_file"), ""),
    "Responses, limits and timeouts": (
        (
            "upstream_status",
            "upstream_body_limit",
            "responses",
            "upstream_connect",
            "upstream_read",
            "upstream_timeout",
            "upstream_tries",
        ),
        "[Response rules](../connect/response-rules.md) gives responses another meaning.",
    ),
    "Rate and concurrency of the external API": (
        (
            "upstream_rate",
            "upstream_cost",
            "upstream_burst",
            "upstream_concurrency",
            "upstream_quota",
            "upstream_adapt",
        ),
        "These limits hold over all processes. See [quotas](../connect/quotas.md).",
    ),
    "Bulk requests": (("upstream_bulk",), "See [bulk requests](../connect/bulk-requests.md)."),
    "Mapping and own code": (
        ("mapping", "transform"),
        "See [mapping](mapping.md) and [your own code](../connect/own-code.md).",
    ),
    "Polling": (
        ("order_list", "poll"),
        "See [polling and backfill](../enqueue/polling-and-backfill.md).",
    ),
    "Workers": (
        ("processes", "concurrency", "shutdown_grace", "batch_", "stuck_after", "loop_block"),
        "[Scale](../operate/scale.md) shows which of these to change.",
    ),
    "Retries and redelivery": (
        ("max_", "heartbeat_ttl", "claim_idle"),
        "[Message lifecycle](../explanation/lifecycle.md) explains attempts, deliveries and leases.",
    ),
    "Storage and results": (
        ("keep_document", "results", "history"),
        "See [results](results.md) and [tables](tables.md).",
    ),
    "HTTP API": (
        ("api_", "durability"),
        "See [use the HTTP API](../enqueue/http-api.md).",
    ),
    "Webhooks": (("webhooks", "coalesce"), "See [webhooks](../enqueue/webhooks.md)."),
    "Console": (("console",), "See [the console](../operate/console.md)."),
    "Outbox and relay": (("outbox", "relay"), "See [the outbox](../enqueue/outbox.md)."),
    "Metrics, logs and traces": (
        ("metrics_", "log_", "otlp"),
        "See [metrics](metrics.md), [log events](log-events.md) and [traces](../operate/traces.md).",
    ),
}


def settings_page() -> str:
    """The page, in Markdown.

    Raises:
        ValueError: a setting belongs to no topic.
    """
    fields = dict(Settings.model_fields)
    lines = [_INTRODUCTION]
    for title, introduction, names in _topics([*fields]):
        lines += [f"## {title}", ""]
        lines += [introduction, ""] if introduction else []
        lines += ["| setting | default | values | description |", "|---|---|---|---|"]
        for name in names:
            field = fields.pop(name)
            lines.append(f"| `{PREFIX}{name.upper()}` | {_default(field)} | {_values(field)} | {_text(field)} |")
        lines.append("")
    if fields:
        raise ValueError(f"settings without a topic: {', '.join(fields)}")
    return "\n".join(lines).rstrip() + "\n"


def _topics(names: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    found: dict[str, list[str]] = {title: [] for title in _TOPICS}
    for name in names:
        # The longest beginning decides: `upstream_body_limit` is a limit, and `upstream_body` is a body.
        fitting = [
            (len(prefix), title)
            for title, (prefixes, _) in _TOPICS.items()
            for prefix in prefixes
            if name.startswith(prefix)
        ]
        if fitting:
            found[max(fitting)[1]].append(name)
    for title, (_, introduction) in _TOPICS.items():
        yield title, introduction, found[title]


def _default(field: FieldInfo) -> str:
    value = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
    return "" if value in {None, ""} else f"`{getattr(value, 'value', value)}`"


def _values(field: FieldInfo) -> str:
    if get_args(field.annotation) == ("on", "off"):
        return "`on`, `off`"
    limits = {key: value for part in [*field.metadata, *_optional(field)] for key, value in _limits(part)}
    low, high, above = limits.get("ge"), limits.get("le"), limits.get("gt")
    # Such a limit only prevents an overflow.
    high = None if high is not None and high >= LONGEST else high
    if above == 0 and isinstance(field.default, int):
        low, above = 1, None
    if above is not None:
        return f"above {above:,g}" + ("" if high is None else f", at most {_number(high)}")
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    return "" if low is None else f"at least {_number(low)}"


def _optional(field: FieldInfo) -> Iterator[Any]:
    """The constraints of a value that may be missing: `Annotated[int, Field(gt=0)] | None`."""
    for option in get_args(field.annotation):
        for part in getattr(option, "__metadata__", ()):
            yield from getattr(part, "metadata", [part])


def _limits(constraint: Any) -> Iterator[tuple[str, float]]:
    for key in ("ge", "gt", "le"):
        if isinstance(value := getattr(constraint, key, None), int | float):
            yield key, value


def _number(value: float) -> str:
    return f"{value:,.15g}"


def _text(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")
