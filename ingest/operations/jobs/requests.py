"""Makes requests for jobs, which only include entries that exist when the job is requested."""

from collections.abc import Mapping

from ingest.domain.deliveries.selection import InvalidSelection, Selection
from ingest.domain.operating.jobs import JobKind, JobRequest
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.jobs.export import FORMAT


async def entry_request(
    entries: FailedEntries,
    kind: JobKind,
    selection: Selection,
    *,
    newest: Mapping[str, str] | None = None,
    total: int | None = None,
    rate: float | None = None,
    file_format: str | None = None,
) -> JobRequest:
    """Return the request for a job of a kind of dead letters or retries.

    Args:
        entries: of the source.
        kind: of the job.
        selection: which entries.
        newest: dead letter of each partition, from a survey. The default is the newest one now.
        total: how many match, if known.
        rate: limit of changes per second, or None.
        file_format: of an export, one of `FORMATS`. The default is `jsonl`.

    Raises:
        InvalidSelection: an export contains IDs, whose dead letters are not in an order that the export could continue.
        QueueUnavailable: Redis cannot be used right now.
    """
    is_export = kind is JobKind.EXPORT
    if is_export and selection.ids:
        raise InvalidSelection("an export as a job selects dead letters by other criteria than IDs")
    chosen = {**selection_as_dict(selection), **await entries.bounds(newest)}
    if is_export:
        chosen[FORMAT] = file_format or "jsonl"
    return JobRequest(kind, chosen, total, rate)
