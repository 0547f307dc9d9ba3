"""Reads the dead letters of one group page by page, in either direction.

A search omits documents and unknown fields, because two hundred documents may be a gigabyte. Whole entries that match are read on request,
a few megabytes per step.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.entry_fields import SEEN_KEY
from ingest.domain.deliveries.selection import Selection
from ingest.queue.layout.entries import pairs, to_dead_letter, with_seen
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import replies, translated
from ingest.queue.redis.scripts import load

PAGE = 200
# IDs that one script looks up. Each may belong to an entry of several megabytes, which Redis copies.
_LOOKED_UP_AT_ONCE = 20
# Large entries that are read together, unless a single one is larger.
_MOST_BYTES = 2 << 20
_ENTRY_ID = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")

Call = Callable[..., Awaitable[Any]]
# A dead letter without its document and unknown fields, and the bytes of all of it.
Row = tuple[DeadLetterEntry, int]


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Consecutive dead letters.

    Attributes:
        rows: the dead letters that match the selection.
        examined: how many dead letters were read.
        last: the ID of the last dead letter that was read, without the suffix of the partition.
    """

    rows: Sequence[Row]
    examined: int
    last: str = ""

    @property
    def entries(self) -> list[DeadLetterEntry]:
        """The dead letters that match."""
        return [entry for entry, _ in self.rows]


async def _directly(call: Call, *arguments: Any) -> Any:
    return await call(*arguments)


class DeadLetterPages:
    """The pages of one dead-letter stream.

    `run` calls a function that reads from Redis, and may call it again while Redis is unavailable. The IDs of the dead letters
    end with `id_suffix`.
    """

    def __init__(self, client: Redis, keys: Keys, *, run: Call = _directly, id_suffix: str = "") -> None:
        self._client = client
        self._key, self._seen = keys.dead, keys.dead_seen
        self._run = run
        self._id_suffix = id_suffix
        self._list = load(client, "list_dead")
        self._look_up = load(client, "look_up_dead")

    def oldest_first(
        self, selection: Selection, newest: str = "+", after: str = ""
    ) -> AsyncGenerator[DeadLetterPage, None]:
        """The dead letters that match, after one ID and up to another, without documents and unknown fields."""
        return self._pages(selection, "XRANGE", f"({after}" if after else first_id(selection), newest)

    def newest_first(self, selection: Selection) -> AsyncGenerator[DeadLetterPage, None]:
        """The dead letters that match, without documents and unknown fields."""
        return self._pages(selection, "XREVRANGE", "+", first_id(selection))

    async def whole(
        self, pages: AsyncGenerator[DeadLetterPage, None], most: int = PAGE
    ) -> AsyncGenerator[DeadLetterPage, None]:
        """At most `most` dead letters of these pages each, with all their fields, except those that are gone by now."""
        async with aclosing(pages):
            async for page in pages:
                remaining = page.examined
                for rows in together(page.rows, most):
                    entry_ids = [entry.entry_id for entry, _ in rows]
                    last = entry_ids[-1].removesuffix(self._id_suffix)
                    # Only the caller keeps the whole entries.
                    yield DeadLetterPage(
                        [(entry, 0) for entry in await self._run(self.read, entry_ids)], len(rows), last
                    )
                    remaining -= len(rows)
                if remaining:
                    yield DeadLetterPage((), remaining, page.last)

    async def one_page(
        self, command: str, start: str, end: str, most: int, fields: Iterable[bytes] = ()
    ) -> tuple[Sequence[Row], str | None]:
        """One page as the script `list_dead` reads it, and where the next one begins, or None after the last one."""
        with translated():
            after, rows = await self._list([self._key, self._seen], [command, start, end, most, *fields])
            return self._rows(rows), after.decode() or None

    async def read(self, entry_ids: Sequence[str]) -> list[DeadLetterEntry]:
        """The dead letters with these IDs, with all their fields."""
        entry_ids = self._bare(entry_ids)
        if not entry_ids:
            return []
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for entry_id in entry_ids:
                    pipe.xrange(self._key, entry_id, entry_id)
                found = await replies(pipe)
            rows = [row for entries in found for row in entries]
            keys = [fields.get(SEEN_KEY, b"") for _, fields in rows]
            noted: Any = await self._client.hmget(self._seen, keys) if any(keys) else [None] * len(rows)
        return [
            to_dead_letter(name, with_seen(name, fields, each), self._id_suffix)
            for (name, fields), each in zip(rows, noted, strict=True)
        ]

    async def _looked_up(self, entry_ids: Sequence[str], fields: Collection[bytes]) -> Sequence[Row]:
        with translated():
            return self._rows(await self._look_up([self._key, self._seen], [len(fields), *fields, *entry_ids]))

    async def _pages(
        self, selection: Selection, command: str, start: str, end: str
    ) -> AsyncGenerator[DeadLetterPage, None]:
        # IDs of dead letters are looked up first, without a search. They do not look like order IDs.
        looked_up: set[str] = set()
        entry_ids, fields = sorted(self._bare(selection.ids)), selection.filter.unlisted_fields
        for at in range(0, len(entry_ids), _LOOKED_UP_AT_ONCE):
            found = await self._run(self._looked_up, entry_ids[at : at + _LOOKED_UP_AT_ONCE], fields)
            looked_up.update(entry.entry_id for entry, _ in found)
            yield DeadLetterPage([row for row in found if selection.matches(row[0])], len(found))
        if selection.ids:
            if selection.ids <= looked_up:
                return
            selection = replace(selection, ids=selection.ids - looked_up)
        while found := (await self._run(self.one_page, command, start, end, PAGE, fields))[0]:
            last = found[-1][0].entry_id.removesuffix(self._id_suffix)
            start = f"({last}"
            matching = [row for row in found if selection.matches(row[0]) and row[0].entry_id not in looked_up]
            yield DeadLetterPage(matching, len(found), last)

    def _rows(self, reply: Sequence[Any]) -> Sequence[Row]:
        return [(to_dead_letter(entry_id, pairs(fields), self._id_suffix), size) for entry_id, fields, size in reply]

    def _bare(self, entry_ids: Iterable[str]) -> list[str]:
        """Those that end with the suffix, as Redis writes them."""
        bare = (each.removesuffix(self._id_suffix) for each in entry_ids if each.endswith(self._id_suffix))
        return list(filter(is_entry_id, bare))


def together(rows: Sequence[Row], most: int = PAGE) -> Iterator[Sequence[Row]]:
    """Groups of at most `most` of them, so that no more than some megabytes are read together."""
    group: list[Row] = []
    room = _MOST_BYTES
    for row in rows:
        if group and (row[1] > room or len(group) == most):
            yield group
            group, room = [], _MOST_BYTES
        group.append(row)
        room -= row[1]
    if group:
        yield group


def is_entry_id(text: str) -> bool:
    """Whether a text is the ID of a stream entry, as Redis writes it."""
    return _ENTRY_ID.fullmatch(text) is not None and all(int(part) < 1 << 64 for part in text.split("-"))


def first_id(selection: Selection) -> str:
    """Before which no dead letter matches."""
    # By Redis' clock an entry's ID is never earlier than its `dead_at`, and IDs grow even if that clock goes back.
    return "-" if selection.since is None else f"{max(0, int(selection.since.timestamp() * 1000))}-0"
