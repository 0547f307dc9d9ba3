"""Reads the dead letters of one group page by page, in either direction."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.domain.dead_letter import DeadLetterEntry, Selection
from ingest.queue.connection import translated
from ingest.queue.dead_entries import to_dead_letter
from ingest.queue.entries import pairs

PAGE = 200
_ENTRY_ID = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")

Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive dead letters.

    Attributes:
        entries: the dead letters that match the selection.
        examined: how many dead letters were read.
    """

    entries: Sequence[DeadLetterEntry]
    examined: int


async def _directly(call: Call, *arguments: Any) -> Any:
    return await call(*arguments)


class DeadLetterPages:
    """The pages of one dead-letter stream.

    Args:
        client: a connection to Redis.
        key: of the stream.
        run: calls a function that reads from Redis, and may call it again while Redis is unavailable.
        summarize: a script that reads pages without documents and unknown fields; None to read everything.
    """

    def __init__(self, client: Redis, key: str, run: Call = _directly, summarize: AsyncScript | None = None) -> None:
        self._client = client
        self._key = key
        self._run = run
        self._summarize = summarize

    def oldest_first(self, selection: Selection, newest: str = "+") -> AsyncGenerator[Page, None]:
        """The dead letters that match, up to the ID `newest`."""

        async def read(after: str | None) -> list[DeadLetterEntry]:
            start = after or first_id(selection)
            with translated():
                if self._summarize is not None:
                    _, rows = await self._summarize([self._key], ["XRANGE", start, newest, PAGE])
                    return [to_dead_letter(entry_id, pairs(fields)) for entry_id, fields in rows]
                found: Any = await self._client.xrange(self._key, start, newest, count=PAGE)
            return [to_dead_letter(*entry) for entry in found]

        return self._pages(selection, read)

    def newest_first(self, selection: Selection) -> AsyncGenerator[Page, None]:
        """The dead letters that match."""

        async def read(before: str | None) -> list[DeadLetterEntry]:
            with translated():
                found: Any = await self._client.xrevrange(self._key, before or "+", first_id(selection), count=PAGE)
            return [to_dead_letter(*entry) for entry in found]

        return self._pages(selection, read)

    async def look_up(self, entry_ids: Sequence[str]) -> list[DeadLetterEntry]:
        """The dead letters with these IDs of their own."""
        entry_ids = list(filter(is_entry_id, entry_ids))
        if not entry_ids:
            return []
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for entry_id in entry_ids:
                    pipe.xrange(self._key, entry_id, entry_id)
                replies = await pipe.execute()
        return [to_dead_letter(*entry) for found in replies for entry in found]

    async def _pages(self, selection: Selection, read: Call) -> AsyncGenerator[Page, None]:
        # IDs that are those of dead letters are looked up first, without a search. They do not look like order IDs.
        looked_up: set[str] = set()
        entry_ids = sorted(filter(is_entry_id, selection.ids))
        for start in range(0, len(entry_ids), PAGE):
            found = await self._run(self.look_up, entry_ids[start : start + PAGE])
            looked_up.update(entry.entry_id for entry in found)
            yield Page([entry for entry in found if selection.matches(entry)], len(found))
        if selection.ids:
            if selection.ids <= looked_up:
                return
            selection = replace(selection, ids=selection.ids - looked_up)
        cursor = None
        while found := await self._run(read, cursor):
            cursor = f"({found[-1].entry_id}"
            matching = [entry for entry in found if selection.matches(entry) and entry.entry_id not in looked_up]
            yield Page(matching, len(found))


def is_entry_id(text: str) -> bool:
    """Whether a text is the ID of a stream entry, as Redis writes it."""
    return _ENTRY_ID.fullmatch(text) is not None and all(int(part) < 1 << 64 for part in text.split("-"))


def first_id(selection: Selection) -> str:
    """Before which no dead letter matches."""
    # By Redis' clock an entry's ID is never earlier than its `dead_at`, and IDs grow even if that clock goes back.
    return "-" if selection.since is None else f"{max(0, int(selection.since.timestamp() * 1000))}-0"
