"""The retry set of one partition: list it, run retries now, or dead-letter them.

Each script moves some entries, all of them or none. An entry that has been moved is not moved again, so every call can be repeated. If the
process dies here, the earlier pages are done and the others untouched.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.asyncio import Redis

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order_state import RetryEntry
from ingest.queue.layout.entries import pairs
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.failed.entry_scripts import EntryScripts
from ingest.queue.operate.order_search import to_retry
from ingest.queue.redis.connection import translated
from ingest.queue.redis.scripts import load

PAGE = 100
_DUE = re.compile(r"-?(inf|[0-9]{1,25}(\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?)")


class Position(NamedTuple):
    """Where a page of retries ends.

    Attributes:
        due: the time of the last entry, in ms, as Redis writes it.
        name: of the last entry, each byte as the character with its number.
    """

    due: str = "-inf"
    name: str = ""

    @property
    def is_valid(self) -> bool:
        """Whether it may come from `PartitionRetries.page`."""
        return _DUE.fullmatch(self.due) is not None and all(ord(character) < 256 for character in self.name)


@dataclass(frozen=True, slots=True)
class RetryPage:
    """Consecutive retries.

    Attributes:
        next: after which the next page begins, or None after the last one.
        positions: of the entries.
        missing: partitions that cannot be read.
    """

    entries: Sequence[RetryEntry]
    next: Position | None
    positions: Sequence[Position]
    missing: Sequence[PartitionTrouble] = ()


@dataclass(frozen=True, slots=True)
class RetrySurvey:
    """The retries that match a selection.

    Attributes:
        names: of their entries.
        reasons: how many for each reason.
        missing: selected orders that have no matching retry.
    """

    names: Sequence[bytes]
    reasons: Mapping[str, int]
    missing: frozenset[str]

    @property
    def count(self) -> int:
        """How many match."""
        return len(self.names)


class PartitionRetries:
    """The entries of one queue that wait for their next attempt.

    Methods raise `QueueUnavailable` when Redis cannot be used right now. All IDs of entries end with `id_suffix`.
    """

    def __init__(self, client: Redis, queue: str, group: str = DEFAULT_GROUP, *, id_suffix: str = "") -> None:
        self._client = client
        self._id_suffix = id_suffix
        self._keys = Keys.of(queue, group)
        self._list = load(client, "list_retries")
        self._scripts = EntryScripts(client, self._keys, group)
        self._server_time = load(client, "server_time")

    async def count(self) -> int:
        """How many there are."""
        with translated():
            return int(await self._client.zcard(self._keys.retry))

    async def server_ms(self) -> int:
        """The time of the server, in Unix milliseconds. Entries that are added later have IDs with a later time."""
        with translated():
            return int(await self._server_time([self._keys.retry]))

    async def page(
        self,
        after: Position = Position(),  # noqa: B008  immutable
        most: int = PAGE,
        fields: Iterable[bytes] = (),
    ) -> RetryPage:
        """The next retries, at most `most`, the soonest first. Those of their unknown fields are read that are named."""
        with translated():
            arguments: list[Any] = [after.due, after.name.encode("latin-1"), most, *fields]
            due, name, found = await self._list([self._keys.retry, self._keys.retry_entries], arguments)
            rows = [pairs(about) for about in found]
            entries = [to_retry(about, self._id_suffix) for about in rows]
        end = _position(due, name) if due else None
        return RetryPage(entries, end, [_position(about[b"due"], about[b"id"]) for about in rows])

    async def pages(self, fields: Collection[bytes] = ()) -> AsyncIterator[RetryPage]:
        """All of them. A retry that is scheduled again during the search may come twice."""
        position: Position | None = Position()
        while position is not None:
            page = await self.page(position, fields=fields)
            yield page
            position = page.next

    async def survey(self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None) -> RetrySurvey:
        """Find the retries that match, and count them by reason. `on_progress` is called with the number of examined ones."""
        reasons: dict[bytes, str] = {}
        missing, examined = set(selection.ids), 0
        async for page in self.pages(selection.filter.unlisted_fields):
            matching = [entry for entry in page.entries if selection.matches(entry)]
            reasons.update((entry.name, entry.reason) for entry in matching)
            missing.difference_update(entry.order_id for entry in matching)
            examined += len(page.entries)
            on_progress(examined)
        return RetrySurvey([*reasons], Counter(reasons.values()), frozenset(missing))

    async def change(
        self,
        kind: JobKind,
        selected: Selection | RetrySurvey,
        actor: str = "",
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Change retries that match, or that a survey has found, and return how many.

        Args:
            kind: `RUN_NOW`, so that they are due now, and workers move them within a second, or `DEAD_LETTER`.
            selected: which retries.
            actor: the worker of the dead letters.
            on_progress: called with how many were changed so far.
        """
        script, keys, arguments = self._scripts.of(kind, actor)
        # All are read before any is changed, because a changed retry would come again at its new place.
        if isinstance(selected, Selection):
            selected = await self.survey(selected, on_progress=lambda _: on_progress(0))
        names, done = selected.names, 0
        for start in range(0, len(names), PAGE):
            with translated():
                done += int(await script(keys, [*arguments, *names[start : start + PAGE]]))
            on_progress(done)
        return done


def _position(due: bytes, name: bytes) -> Position:
    return Position(due.decode(), name.decode("latin-1"))
