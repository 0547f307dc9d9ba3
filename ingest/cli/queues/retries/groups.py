"""`ingest retries groups`: counts retries by reason and error."""

from functools import partial

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, Sources
from ingest.cli.queues.criteria import Attributes, Shape, Text, selection_or_all
from ingest.cli.queues.retries import Ids, Reasons, Since, Until
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
    """Count retries by reason and error.

    The largest group comes first. Errors that differ only in numbers, IDs, times or quoted values are one group.

    Examples:
    `ingest retries groups` shows the errors because of which orders wait, each with how many orders it affects.

    `ingest retries run-now --shape "HTTP 503"` makes the next attempt of a whole group due now.
    """
    from ingest.cli.queues.grouping import print_groups
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.failed_orders.group_surveys import group

    selection = selection_or_all(ids, reason, since, until, text, shape, attribute)
    sources = backends_of_sources(source)
    found = run_with_progress("reading", partial(group, [*sources.values()], EntryKind.RETRIES, selection))
    print_groups(found, nouns="retries", with_source=UNNAMED not in sources, as_json=as_json)
