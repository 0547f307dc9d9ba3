"""`ingest dead groups`: counts dead letters by reason and error."""

from ingest.cli.options import AsJson
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.domain.deliveries.entry_kind import EntryKind


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
    from ingest.cli.queues.grouping import print_groups

    print_groups(EntryKind.DEAD_LETTERS, chosen, as_json=as_json)
