"""`ingest audit`: lists manual changes, newest first."""

from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import TIME, AsJson, Limit, Sources, parse_period
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_time
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.operating.audited_operation import AuditFilter
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.operating.audited_operation import AuditedOperation

_TABLE = Table(("time", "actor", "role", "action", "source", "count", "state", "selection"), names=1, facts=7)
_LONGEST_SELECTION = 200

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
    import msgspec

    from ingest.operations.audit_trail import as_object, newest

    begin, end = parse_period(since, until)
    backends = backends_of_sources(source)
    selection = AuditFilter([*backends] if source else None, actor, action, begin, end)
    found = run_interruptible(newest(next(iter(backends.values())).postgres_dsn, selection, limit))
    if as_json:
        with standard_output() as stream:
            stream.writelines(printable_json(msgspec.json.encode(as_object(each)).decode()) + "\n" for each in found)
    elif found:
        rows = [_row(each) for each in found]
        print_table(_TABLE, rows, [row[-1] for row in rows])
    else:
        say("no changes")


def _row(operation: "AuditedOperation") -> tuple[str, ...]:
    import msgspec

    return (
        format_time(operation.at),
        printable(operation.actor, 64),
        printable(operation.role or "", 64),
        printable(operation.action, 64),
        printable(operation.source, 32),
        "" if operation.count is None else f"{operation.count:,}",
        operation.state.value,
        printable(msgspec.json.encode(operation.selection).decode(), _LONGEST_SELECTION),
    )
