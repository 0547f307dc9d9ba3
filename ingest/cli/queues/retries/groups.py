"""`ingest retries groups`: counts retries by reason and error."""

from ingest.cli.options import AsJson
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.domain.deliveries.entry_kind import EntryKind


@selecting(EntryKind.RETRIES)
def groups(chosen: Chosen, *, as_json: AsJson = False) -> None:
    """Count retries by reason and error.

    The largest group comes first. Errors that differ only in numbers, IDs, times or quoted values are one group.

    The exit code is 1 if Redis cannot be used for a partition. The command groups the others, and reports the missing ones.

    Examples:
    `ingest retries groups` shows the errors because of which orders wait, each with how many orders it affects.

    `ingest retries run-now --shape "HTTP 503"` makes the next attempt of a whole group due now.
    """
    from ingest.cli.queues.grouping import print_groups

    print_groups(EntryKind.RETRIES, chosen, as_json=as_json)
