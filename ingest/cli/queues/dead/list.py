"""`ingest dead list`: lists dead letters, newest first."""

from collections.abc import Sequence
from functools import partial

import typer

from ingest.cli.invocation import backends_of_sources, reader
from ingest.cli.options import AsJson, Limit
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_kind import EntryKind


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
