"""`ingest dead groups`: counts dead letters by reason and error."""

from functools import partial

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, Sources
from ingest.cli.queues.criteria import Attributes, Shape, Text, selection_or_all
from ingest.cli.queues.dead import Ids, Reasons, Since, Until
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.source_name import UNNAMED


def groups(
    ids: Ids = None,
    *,
    source: Sources = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    shape: Shape = None,
    attribute: Attributes = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by reason and error.

    The largest group comes first. Errors that differ only in numbers, IDs, times or quoted values are one group. Paths such as `$.lines[].price` are kept.

    Examples:
    `ingest dead groups` shows the errors of all sources, each with how many orders it affects.

    `ingest dead groups --source shop-de --since 2h --json` prints one JSON object per line, for scripts.

    `ingest dead replay --shape "currency missing at $.total"` puts a whole group back into the queue.
    """
    from ingest.cli.queues.grouping import print_groups
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.failed_orders.group_surveys import group

    selection = selection_or_all(ids, reason, since, until, text, shape, attribute)
    sources = backends_of_sources(source)
    found = run_with_progress("reading", partial(group, [*sources.values()], EntryKind.DEAD_LETTERS, selection))
    print_groups(found, nouns="dead letters", with_source=UNNAMED not in sources, as_json=as_json)
