"""The queues to which a relay moves rows, one for each source. A full queue does not hold up the rows of other sources."""

import time
from collections.abc import Callable, Mapping

from ingest.domain.source_name import names_in_outbox
from ingest.operations.relay.rows import RowEnqueuer


class SourceQueues:
    """The sources whose rows a relay moves.

    Args:
        enqueuers: by the name of the source.
        clock: monotonic seconds.
    """

    def __init__(self, enqueuers: Mapping[str, RowEnqueuer], clock: Callable[[], float] = time.monotonic) -> None:
        self._enqueuers = enqueuers
        self._clock = clock
        only = next(iter(enqueuers))
        self._sources = {name: name if name in enqueuers else only for name in names_in_outbox(enqueuers.keys())}
        self._full_until: dict[str, float] = {}

    @property
    def names(self) -> list[str]:
        """The names that rows may have."""
        return [*self._sources]

    def source_of(self, name: str) -> str:
        """Return the source of the rows with this name."""
        return self._sources[name]

    def enqueuer(self, source: str) -> RowEnqueuer:
        """Return the enqueuer of a source."""
        return self._enqueuers[source]

    def names_with_room(self) -> list[str]:
        """Return the names of the sources whose queues are not known to be full."""
        now = self._clock()
        self._full_until = {source: until for source, until in self._full_until.items() if until > now}
        return [name for name, source in self._sources.items() if source not in self._full_until]

    def note_full(self, source: str, seconds: float) -> None:
        """Leave the rows of a source in the outbox for this time."""
        self._full_until[source] = self._clock() + seconds

    def are_all_full(self) -> bool:
        """Return whether no queue has room."""
        return not self.names_with_room()

    def retry_all(self) -> None:
        """Try all queues again now."""
        self._full_until.clear()

    def next_retry(self) -> float | None:
        """Return the seconds until a full queue is tried again, or None if no queue is full."""
        if not self._full_until:
            return None
        return max(0.0, min(self._full_until.values()) - self._clock())
