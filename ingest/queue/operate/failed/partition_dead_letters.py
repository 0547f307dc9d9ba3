"""The dead letters of one partition: search, replay and drop them.

A replay or a drop moves several dead letters by one script, all of them or none. A dead letter that is gone is not moved again, so the call
can be repeated after a lost reply, and two concurrent operators move each dead letter once. If the process dies here, the earlier pages
are done and the others untouched.
"""

import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.failed.dead_letter_pages import (
    PAGE,
    Call,
    DeadLetterPage,
    DeadLetterPages,
    first_id,
    together,
)
from ingest.queue.operate.failed.entry_scripts import EntryScripts
from ingest.queue.operate.repeated_calls import RepeatedCalls
from ingest.queue.redis.connection import translated

_Newest = TypeVar("_Newest")
_NONE_YET = "0-0"

# Moved by one script, and fewer large ones. Each costs Redis about 50 us, because it skips entries that were deleted before it.
_MOVED_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Survey(Generic[_Newest]):
    """The dead letters or retries that match a selection at one moment.

    Attributes:
        reasons: how many there are for each reason.
        missing: IDs in the selection that none of them has.
        newest: the ID of the newest dead letter, or of each partition's, by the name of its queue. Replays and drops stop there, so
            that an order that fails again in that time is not moved twice by one command.
        unavailable: partitions that cannot be read.
    """

    reasons: Mapping[str, int]
    missing: frozenset[str]
    newest: _Newest
    unavailable: Sequence[PartitionTrouble] = ()

    @property
    def count(self) -> int:
        """How many match."""
        return sum(self.reasons.values())


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a change.

    Attributes:
        done: entries that were moved or deleted.
        gone: dead letters that another operator had moved or deleted since they were read.
        unavailable: partitions that cannot be changed.
    """

    done: int = 0
    gone: int = 0
    unavailable: Sequence[PartitionTrouble] = ()

    def __add__(self, other: "Change") -> "Change":
        """Return the sum of two results."""
        return Change(self.done + other.done, self.gone + other.gone, (*self.unavailable, *other.unavailable))


class PartitionDeadLetters:
    """Searches and changes the dead letters of one queue.

    Reading raises `QueueUnavailable` when Redis cannot be used right now. `survey` and `change` wait until it
    can, and call `on_wait` with each reason. All IDs end with `id_suffix`.
    Backlog limits do not hold back a replay, because an operator has requested it.

    Attributes:
        id_suffix: the suffix.
    """

    def __init__(
        self,
        client: Redis,
        queue: str,
        *,
        group: str = DEFAULT_GROUP,
        on_wait: Callable[[str], None] = lambda _: None,
        id_suffix: str = "",
    ) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self.id_suffix = id_suffix
        self._scripts = EntryScripts(client, self._keys, group)
        self._repeated = RepeatedCalls(on_wait)
        self._pages = DeadLetterPages(client, self._keys, id_suffix=id_suffix)
        self._pages_waiting = DeadLetterPages(client, self._keys, run=self._waiting, id_suffix=id_suffix)

    async def count(self) -> int:
        """How many dead letters there are."""
        with translated():
            return int(await self._client.xlen(self._keys.dead))

    async def get(self, entry_id: str) -> DeadLetterEntry | None:
        """The dead letter with this ID, if there is one."""
        return next(iter(await self._pages.read([entry_id])), None)

    async def summaries(
        self, selection: Selection, before: str | None, most: int
    ) -> tuple[list[DeadLetterEntry], str | None]:
        """A page of dead letters, the newest first, without their documents and unknown fields.

        Args:
            selection: which dead letters. Others are examined as well, so that a page may be empty.
            before: where the previous page has ended, or None for the first page.
            most: dead letters to examine.

        Returns:
            The dead letters that match, and where the next page begins, or None after the last one.
        """
        rows, next_ = await self._pages.one_page(
            "XREVRANGE", before or "+", first_id(selection), most, selection.filter.unlisted_fields
        )
        return [entry for entry, _ in rows if selection.matches(entry)], next_

    async def newest(self) -> str:
        """The ID of the newest dead letter without the suffix, or `0-0` if there is none."""
        rows, _ = await self._pages.one_page("XREVRANGE", "+", "-", 1)
        return rows[0][0].entry_id.removesuffix(self.id_suffix) if rows else _NONE_YET

    def oldest_first(
        self, selection: Selection, *, newest: str = "+", after: str = "", most: int = PAGE
    ) -> AsyncGenerator[DeadLetterPage, None]:
        """Pages of at most `most` dead letters that match, after one ID and up to another. Close it if you stop early."""
        return self._pages.whole(self._pages.oldest_first(selection, newest, after), most)

    def newest_first(self, selection: Selection) -> AsyncGenerator[DeadLetterPage, None]:
        """Pages of the dead letters that match. Close it if you stop early."""
        return self._pages.whole(self._pages.newest_first(selection))

    def newest_summaries(self, selection: Selection) -> AsyncGenerator[DeadLetterPage, None]:
        """As `newest_first`, without documents and unknown fields."""
        return self._pages.newest_first(selection)

    def oldest_summaries(
        self, selection: Selection, *, after: str = "", newest: str = "+"
    ) -> AsyncGenerator[DeadLetterPage, None]:
        """Pages of the dead letters that match, after one ID and up to another, without documents and unknown fields.

        It waits while Redis is unavailable.
        """
        return self._pages_waiting.oldest_first(selection, newest, after)

    def oldest_whole(
        self, selection: Selection, *, after: str = "", newest: str = "+", most: int = PAGE
    ) -> AsyncGenerator[DeadLetterPage, None]:
        """As `oldest_first`, but it waits while Redis is unavailable."""
        pages = self._pages_waiting.oldest_first(selection, newest, after)
        return self._pages_waiting.whole(pages, most)

    async def survey(self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None) -> Survey[str]:
        """Count the dead letters that match. It waits while Redis is unavailable.

        `on_progress` is called with how many were examined so far.
        """
        newest: str = await self._waiting(self.newest)
        reasons: Counter[str] = Counter()
        found: set[str] = set()
        examined = 0
        async for page in self._pages_waiting.oldest_first(selection, newest):
            reasons.update(entry.reason for entry in page.entries)
            found.update(*(selection.names(entry) for entry in page.entries))
            examined += page.examined
            on_progress(examined)
        return Survey(reasons, selection.ids - found, newest)

    async def change(
        self,
        kind: JobKind,
        selection: Selection,
        *,
        newest: str | None = None,
        on_progress: Callable[[Change], None] = lambda _: None,
    ) -> Change:
        """Replay or drop the dead letters that match. It waits while Redis is unavailable, or full in a replay.

        A replay puts them back into the queue with fresh attempts. They keep their fields and the time when they were first announced,
        and record how often and when they were replayed. Those of orders that were erased are deleted instead, and count as gone.
        Cancelled, a whole number of scripts has run.

        Args:
            kind: `REPLAY`, or `DROP`, which deletes them permanently.
            selection: which dead letters.
            newest: the last of them. The default is the newest one now.
            on_progress: called with the result so far.
        """
        script, keys, arguments = self._scripts.of(kind, "")
        change = Change()
        until = newest or await self._waiting(self.newest)
        async for page in self._pages_waiting.oldest_first(selection, until):
            for rows in together(page.rows, _MOVED_AT_ONCE):
                record = self._keys.records + secrets.token_hex(12)
                entry_ids = [entry.entry_id.removesuffix(self.id_suffix) for entry, _ in rows]
                done = await self._waiting(_run, script, [*keys, record], [*arguments, *entry_ids])
                change = Change(change.done + done, change.gone + len(entry_ids) - done)
            on_progress(change)
        return change

    async def _waiting(self, call: Call, *arguments: Any) -> Any:
        return await self._repeated.call(call, *arguments)


async def _run(script: AsyncScript, keys: Sequence[str], arguments: Sequence[str]) -> int:
    with translated():
        return int(await script(keys, arguments))
