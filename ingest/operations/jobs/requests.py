"""Makes requests for jobs, which only include entries that exist when the job is requested."""

from collections.abc import Mapping

import msgspec

from ingest.domain.deliveries.dead_letter import InvalidSelection, Selection
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.operating.jobs import JobKind, JobRequest
from ingest.domain.operating.selection_json import selection_as_dict
from ingest.operations.jobs.entries import NEWEST, UNTIL_MS
from ingest.operations.jobs.export import FORMAT
from ingest.queue.operate.dead_letters import DeadLetters
from ingest.queue.operate.retries import Retries


async def dead_letter_request(
    dead_letters: DeadLetters,
    kind: JobKind,
    selection: Selection,
    *,
    newest: Mapping[str, str] | None = None,
    total: int | None = None,
    rate: float | None = None,
) -> JobRequest:
    """Return the request for a job of a kind of dead letters.

    Args:
        dead_letters: of the source.
        kind: of the job.
        selection: which dead letters.
        newest: of each partition, from a survey. The default is the newest one now.
        total: how many match, if known.
        rate: limit of changes per second, or None.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    if newest is None:
        newest = {queue: await part.newest() for queue, part in (await dead_letters.by_queue()).items()}
    return JobRequest(kind, {**selection_as_dict(selection), NEWEST: dict(newest)}, total, rate)


async def export_request(
    dead_letters: DeadLetters,
    selection: Selection,
    file_format: str,
    *,
    newest: Mapping[str, str] | None = None,
    total: int | None = None,
    rate: float | None = None,
) -> JobRequest:
    """Return the request for an export in one of `FORMATS`. Other arguments and errors as for `dead_letter_request`.

    Raises:
        InvalidSelection: it contains IDs, whose dead letters are not in an order that the export could continue.
    """
    if selection.ids:
        raise InvalidSelection("an export as a job selects dead letters by other criteria than IDs")
    request = await dead_letter_request(dead_letters, JobKind.EXPORT, selection, newest=newest, total=total, rate=rate)
    return msgspec.structs.replace(request, selection={**request.selection, FORMAT: file_format})


async def retry_request(
    retries: Retries,
    kind: JobKind,
    selection: RetrySelection,
    *,
    total: int | None = None,
    rate: float | None = None,
) -> JobRequest:
    """Return the request for a job of a kind of retries. Arguments and errors as for `dead_letter_request`."""
    until = {queue: await part.server_ms() for queue, part in (await retries.by_queue()).items()}
    return JobRequest(kind, {**selection_as_dict(selection), UNTIL_MS: until}, total, rate)
