"""`ingest dead`: lists, groups, replays and drops dead letters. The selection is the same for all its commands."""

from collections.abc import Sequence
from functools import partial

import typer

from ingest.cli.invocation import backends_of_sources, reader
from ingest.cli.options import AsJson, Changing, Limit
from ingest.cli.queues.criteria import Chosen, changing, selecting
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind

COMMANDS = ("list", "groups", "show", "replay", "drop", "export")


def dead() -> None:
    """List, replay, drop or export dead letters.

    Examples:
    `ingest dead list --since 2h` lists the dead letters of the last two hours, newest first.

    `ingest dead groups` counts the dead letters by reason and error.

    `ingest dead show 536365` shows every detail of a dead letter. The ID is an order's or a dead letter's.

    `ingest dead replay --reason not_found --dry-run` shows what would go back into the queue. Without `--dry-run`,
    it goes back.

    `ingest dead drop --reason rejected --until 30d` deletes dead letters that are more than 30 days old.

    `ingest dead export --format csv --output dead.csv` writes all dead letters to a file.

    Run `ingest dead replay --help` for the help of a command.
    """


@changing(EntryKind.DEAD_LETTERS)
def replay(options: Changing) -> None:
    """Put dead letters back into the queue.

    Their attempts count from the beginning.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    INGEST_BACKLOG_LIMIT does not apply. The orders keep all their fields and the time of their first announcement, and
    record how often and when they were replayed. If Redis is unavailable or out of memory, the command reports it and waits.
    If you interrupt or repeat it, no order is lost or put back twice.

    Without IDs, it is a job with a number, which continues if this process dies: see `ingest job --help`.

    The exit code is 1 if an ID has no dead letter. All others are put back.

    Examples:
    `ingest dead replay 536365 536366` puts two orders back into the queue. The IDs of their dead letters do the same.

    `ingest dead replay --reason not_found --since 2h` asks for confirmation if more than one dead letter matches.

    `ingest dead replay --shape "HTTP 422: order N is unknown"` puts a whole group of `ingest dead groups` back.

    `ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

    `ingest dead replay --all --yes --json` replays all without a confirmation, and prints JSON.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.REPLAY, options)


@changing(EntryKind.DEAD_LETTERS)
def drop(options: Changing) -> None:
    """Delete dead letters permanently.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    Stored orders do not change. If Redis is unavailable, the command reports it and waits.

    The exit code is 1 if an ID has no dead letter. All others are deleted.

    Examples:
    `ingest dead drop 1763629200123-0` deletes one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead drop --until 30d` deletes dead letters that are more than 30 days old, after asking for confirmation.

    `ingest dead drop --reason rejected --dry-run` counts them, and changes nothing.

    `ingest dead export --output dead.jsonl && ingest dead drop --all --yes` keeps a copy.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.DROP, options)


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
    from ingest.cli.listing import say_more
    from ingest.cli.queues.dead.search import exit_code_of, print_json, search
    from ingest.cli.queues.entry_lists import DEAD_LETTERS
    from ingest.operations.failed_orders import dead_letters

    sources = [*backends_of_sources(chosen.sources).values()]
    if as_json:
        found = print_json(sources, chosen.selection, reader("dead list"), limit)
    else:
        entries: list[tuple[str, DeadLetterEntry]] = []

        def write(source: str, page: Sequence[DeadLetterEntry]) -> None:
            entries.extend((source, entry) for entry in page)

        found = search(partial(dead_letters.find, sources, chosen.selection, write, limit=limit))
        DEAD_LETTERS.show(entries, as_json=False, is_complete=not found.unavailable)
    if found.has_more:
        say_more(limit, ", `ingest dead export` writes all")
    raise typer.Exit(exit_code_of(found))


@selecting(EntryKind.DEAD_LETTERS)
def groups(chosen: Chosen, *, as_json: AsJson = False) -> None:
    """Count dead letters by reason and error.

    The largest group comes first. Errors that differ only in numbers, IDs, times or quoted values are one group. Paths such as `$.lines[].price` are kept.

    The exit code is 1 if Redis cannot be used for a partition. The command groups the others, and reports the missing ones.

    Examples:
    `ingest dead groups` shows the errors of all sources, each with how many orders it affects.

    `ingest dead groups --source shop-de --since 2h --json` prints one JSON object per line, for scripts.

    `ingest dead replay --shape "currency missing at $.total"` puts a whole group back into the queue.
    """
    from ingest.cli.queues.entry_lists import print_groups

    print_groups(EntryKind.DEAD_LETTERS, chosen, as_json=as_json)
