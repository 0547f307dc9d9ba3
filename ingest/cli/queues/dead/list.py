"""`ingest dead list`: lists dead letters, newest first.

The table shows the columns that fit the terminal. On a narrow one, the error is on a separate line.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import typer

from ingest.cli.invocation import backends_of_sources, reader, say
from ingest.cli.options import AsJson, Limit
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_age
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.source_name import UNNAMED

TABLE = Table(("id", "order", "reason", "attempts", "dead since", "replays", "error"), names=2, facts=5)
_LONGEST_ERROR = 100

Row = tuple[str, ...]


@selecting(EntryKind.DEAD_LETTERS)
def list_(chosen: Chosen, *, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List dead letters, newest first. Changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The exit code is 1 if an ID has no dead letter, or if Redis cannot be used for a partition. The command lists the other partitions,
    and reports the missing ones. With `--json`, a missing partition is a JSON object with `unavailable`.

    Examples:
    `ingest dead list` lists the newest 50.

    `ingest dead list --reason not_found --reason rejected --since 2h` lists orders that the external API rejected
    in the last two hours.

    `ingest dead list 536365` lists the dead letters of one order.

    `ingest dead list --source shop-de` lists one source. Without `--source`, it lists all sources.

    `ingest dead list --json --limit 1000 | jq -r .order_id` prints their orders. With `--json`, each line is a
    JSON object.

    `ingest dead export` writes all of them, without a limit.
    """
    from ingest.cli.queues.dead.search import exit_code_of, print_json, search
    from ingest.operations.failed_orders import dead_letters

    sources = backends_of_sources(chosen.sources)
    if as_json:
        raise typer.Exit(exit_code_of(print_json([*sources.values()], chosen.selection, reader("dead list"), limit)))
    is_named = UNNAMED not in sources
    rows: list[Row] = []

    def write(source: str, entries: Sequence[DeadLetterEntry]) -> None:
        rows.extend((source, *_row(entry)) if is_named else _row(entry) for entry in entries)

    found = search(partial(dead_letters.find, [*sources.values()], chosen.selection, write, limit=limit))
    if rows:
        print_table(TABLE.with_column("source") if is_named else TABLE, rows, list(map(below, rows)))
    elif not found.unavailable:
        say("no dead letters")
    if found.has_more:
        say(f"there are more than these {limit:,}: --limit lists more, `ingest dead export` writes all")
    raise typer.Exit(exit_code_of(found))


def _row(entry: DeadLetterEntry) -> Row:
    now = datetime.now(UTC)
    replays = f"{entry.replays}, {format_age(entry.replayed_at, now)}" if entry.replayed_at else str(entry.replays)
    seen = f"seen {entry.seen:,} times, last {format_age(entry.last_seen_at, now)}: " if entry.last_seen_at else ""
    return (
        entry.entry_id,
        printable(entry.order_id or "", 128),
        printable(entry.reason, 64),
        "" if entry.attempts is None else str(entry.attempts),
        format_age(entry.dead_at, now),
        replays if entry.replays else "",
        seen + printable(entry.error, _LONGEST_ERROR),
    )


def below(row: Row) -> str:
    """The line below a row on a narrow terminal."""
    *_, replays, error = row
    return (f"replayed {replays}: " if replays else "") + error
