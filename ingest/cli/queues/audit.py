"""`ingest audit`: lists manual changes, newest first."""

from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.cli.listing import Listing
from ingest.cli.options import TIME, AsJson, Limit, Sources, parse_period
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_time
from ingest.domain.operating.audited_operation import AuditFilter
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.operating.audited_operation import AuditedOperation

Actor = Annotated[
    str | None,
    typer.Option(help="Only by this actor: the name of an API key, or `cli:` and a Unix user.", metavar="NAME"),
]
Action = Annotated[
    str | None,
    typer.Option(
        help="Only this action, or with a dot at its end all that begin so: `dead_letters.`.", metavar="ACTION"
    ),
]
Since = Annotated[str | None, typer.Option(help=f"Begun at this time or later. {TIME}", metavar="TIME")]
Until = Annotated[str | None, typer.Option(help=f"Begun before this time. {TIME}", metavar="TIME")]


def audit(
    *,
    source: Sources = None,
    actor: Actor = None,
    action: Action = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List manual changes and their actors, newest first.

    A change with the state `unfinished` is running, or its result is unknown because its process or PostgreSQL ended.

    Examples:
    `ingest audit --since 2h` lists the changes of the last two hours.

    `ingest audit --action dead_letters. --source shop-de` lists the replays and drops of dead letters of one source.

    `ingest audit --json | jq -r .actor | sort | uniq -c` counts the changes of each actor. With `--json`, each line is
    a JSON object.
    """
    from ingest.operations.audit_trail import newest

    begin, end = parse_period(since, until)
    backends = backends_of_sources(source)
    selection = AuditFilter([*backends] if source else None, actor, action, begin, end)
    found = run_interruptible(newest(next(iter(backends.values())).postgres_dsn, selection, limit + 1))
    _CHANGES.show(found, as_json=as_json, limit=limit)


def _as_json(operation: "AuditedOperation") -> str:
    import msgspec

    from ingest.operations.audit_trail import shown

    return printable_json(msgspec.json.encode(shown(operation)).decode())


def _selection(operation: "AuditedOperation") -> str:
    import msgspec

    return printable(msgspec.json.encode(operation.selection).decode(), 200)


_CHANGES: "Listing[AuditedOperation]" = Listing(
    {
        "time": lambda operation: format_time(operation.at),
        "actor": lambda operation: printable(operation.actor, 64),
        "role": lambda operation: printable(operation.role or "", 64),
        "action": lambda operation: printable(operation.action, 64),
        "source": lambda operation: printable(operation.source, 32),
        "count": lambda operation: "" if operation.count is None else f"{operation.count:,}",
        "state": lambda operation: operation.state.value,
        "selection": _selection,
    },
    names=1,
    facts=7,
    nothing="no changes",
    as_json=_as_json,
)
