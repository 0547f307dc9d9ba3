"""The dead letters of one queue: looked through page by page, put back into the stream, or dropped.

Some at a time are moved by one script, all of them or none, guarded by the dead letters themselves: one that is gone is not moved
again, by whomever it was. So a call whose reply was lost is simply repeated, two operators at once move each dead letter
once, and if the process dies here, the pages before are done and the others untouched.
"""

import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.domain.dead_letter import DeadLetterEntry, Selection
from ingest.queue.connection import control_client, translated
from ingest.queue.dead_entries import to_dead_letter
from ingest.queue.keys import DEFAULT_GROUP, Keys
from ingest.queue.patience import patiently
from ingest.queue.scripts import load

PAGE = 200
# Moved by one script: each costs Redis some 50 us, as it looks through what was deleted before it.
_MOVED_AT_ONCE = 50
_NONE_YET = "0-0"
_ENTRY_ID = re.compile(r"(0|[1-9][0-9]{0,19})-(0|[1-9][0-9]{0,19})")

_Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of the dead letters.

    Attributes:
        letters: those that are meant.
        examined: how many there were.
    """

    letters: Sequence[DeadLetterEntry]
    examined: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a selection meant at one moment.

    Attributes:
        reasons: how many dead letters for each reason.
        missing: those of the selection's IDs that stood for none.
        newest: the newest dead letter then. Replays and drops go no further: what fails again and is buried meanwhile
            is not moved twice by one command.
    """

    reasons: Mapping[str, int]
    missing: frozenset[str]
    newest: str

    @property
    def count(self) -> int:
        """How many dead letters."""
        return sum(self.reasons.values())


@dataclass(frozen=True, slots=True)
class Change:
    """What a replay or a drop has done.

    Attributes:
        done: dead letters that were moved.
        gone: those that somebody else had moved since they were looked at.
    """

    done: int = 0
    gone: int = 0


class DeadLetters:
    """Operates on the dead letters of one queue.

    Reading raises `QueueUnavailable` when Redis cannot be used right now; `survey`, `replay` and `drop` wait for it. A
    replay takes no notice of backlog limits: somebody has asked for it.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        group: whose dead letters; each consumer group has its own.
        on_wait: told, in words, why something is waiting.
    """

    def __init__(
        self,
        client: Redis,
        queue: str,
        *,
        group: str = DEFAULT_GROUP,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self._group = group
        self._replay = load(client, "replay")
        self._drop = load(client, "drop")
        self._on_wait = on_wait

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        queue: str,
        *,
        group: str = DEFAULT_GROUP,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator[Self]:
        """The dead letters, with a connection of their own."""
        async with control_client(url) as client:
            yield cls(client, queue, group=group, on_wait=on_wait)

    async def count(self) -> int:
        """How many there are, whatever the reason."""
        with translated():
            return int(await self._client.xlen(self._keys.dead))

    async def get(self, entry_id: str) -> DeadLetterEntry | None:
        """The dead letter with this ID of its own, if it is there."""
        return next(iter(await self._look_up([entry_id])), None) if _is_entry_id(entry_id) else None

    async def newest(self) -> str:
        """The ID of the one that was buried last; `0-0` if there is none."""
        with translated():
            entries: Any = await self._client.xrevrange(self._keys.dead, count=1)
        return entries[0][0].decode() if entries else _NONE_YET

    def oldest_first(self, selection: Selection, *, newest: str = "+") -> AsyncGenerator[Page, None]:
        """Go through those that are meant, up to `newest`; close it if you stop early."""
        return self._pages(selection, self._forward(selection, newest), _directly)

    def newest_first(self, selection: Selection) -> AsyncGenerator[Page, None]:
        """Go through those that are meant, the other way round; close it if you stop early."""

        async def read(before: str | None) -> list[DeadLetterEntry]:
            with translated():
                found: Any = await self._client.xrevrange(
                    self._keys.dead, before or "+", _first_id(selection), count=PAGE
                )
            return [to_dead_letter(*entry) for entry in found]

        return self._pages(selection, read, _directly)

    async def survey(self, selection: Selection, *, on_progress: Callable[[int], None] = lambda _: None) -> Survey:
        """Count those that are meant; waits while Redis is away.

        Args:
            selection: which are meant.
            on_progress: told how many were examined so far.
        """
        newest: str = await self._patiently(self.newest)
        reasons: Counter[str] = Counter()
        found: set[str] = set()
        examined = 0
        async for page in self._pages(selection, self._forward(selection, newest), self._patiently):
            reasons.update(letter.reason for letter in page.letters)
            found.update(*(selection.names(letter) for letter in page.letters))
            examined += page.examined
            on_progress(examined)
        return Survey(reasons, selection.ids - found, newest)

    async def replay(
        self,
        selection: Selection,
        *,
        newest: str | None = None,
        on_progress: Callable[[Change], None] = lambda _: None,
    ) -> Change:
        """Put those that are meant back into the stream, with fresh attempts; waits while Redis is away or full.

        They keep their fields and the time when they were first announced, and remember how often and when they were
        replayed. Cancelled, a whole number of scripts has run.

        Args:
            selection: which are meant.
            newest: up to which; by default, what is there now.
            on_progress: told what is done so far.
        """
        keys = [self._keys.dead, self._keys.stream]
        return await self._change(selection, newest, on_progress, self._replay, keys, [self._group])

    async def drop(
        self,
        selection: Selection,
        *,
        newest: str | None = None,
        on_progress: Callable[[Change], None] = lambda _: None,
    ) -> Change:
        """Delete those that are meant, for good; waits while Redis is away. Arguments as for `replay`."""
        return await self._change(selection, newest, on_progress, self._drop, [self._keys.dead], [])

    async def _change(
        self,
        selection: Selection,
        newest: str | None,
        on_progress: Callable[[Change], None],
        script: AsyncScript,
        keys: Sequence[str],
        arguments: Sequence[str],
    ) -> Change:
        change = Change()
        until = newest or await self._patiently(self.newest)
        async for page in self._pages(selection, self._forward(selection, until), self._patiently):
            for start in range(0, len(page.letters), _MOVED_AT_ONCE):
                receipt = self._keys.receipts + secrets.token_hex(12)
                entry_ids = [letter.entry_id for letter in page.letters[start : start + _MOVED_AT_ONCE]]
                done = await self._patiently(_run, script, [*keys, receipt], [*arguments, *entry_ids])
                change = Change(change.done + done, change.gone + len(entry_ids) - done)
            on_progress(change)
        return change

    async def _pages(self, selection: Selection, read: _Call, ask: _Call) -> AsyncGenerator[Page, None]:
        # An ID of an entry that exists is taken for that one, and found without a search: order IDs do not look like
        # the time of a burial.
        looked_up: set[str] = set()
        entry_ids = sorted(filter(_is_entry_id, selection.ids))
        for start in range(0, len(entry_ids), PAGE):
            letters = await ask(self._look_up, entry_ids[start : start + PAGE])
            looked_up.update(letter.entry_id for letter in letters)
            yield Page([letter for letter in letters if selection.matches(letter)], len(letters))
        if selection.ids:
            if selection.ids <= looked_up:
                return
            selection = replace(selection, ids=selection.ids - looked_up)
        cursor = None
        while letters := await ask(read, cursor):
            cursor = f"({letters[-1].entry_id}"
            meant = [letter for letter in letters if selection.matches(letter) and letter.entry_id not in looked_up]
            yield Page(meant, len(letters))

    def _forward(self, selection: Selection, newest: str) -> _Call:
        async def read(after: str | None) -> list[DeadLetterEntry]:
            with translated():
                found: Any = await self._client.xrange(
                    self._keys.dead, after or _first_id(selection), newest, count=PAGE
                )
            return [to_dead_letter(*entry) for entry in found]

        return read

    async def _look_up(self, entry_ids: Sequence[str]) -> list[DeadLetterEntry]:
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for entry_id in entry_ids:
                    pipe.xrange(self._keys.dead, entry_id, entry_id)
                replies = await pipe.execute()
        return [to_dead_letter(*entry) for found in replies for entry in found]

    async def _patiently(self, call: _Call, *arguments: Any) -> Any:
        return await patiently(self._on_wait, call, *arguments)


async def _directly(call: _Call, *arguments: Any) -> Any:
    return await call(*arguments)


async def _run(script: AsyncScript, keys: Sequence[str], arguments: Sequence[str]) -> int:
    with translated():
        return int(await script(keys, arguments))


def _is_entry_id(text: str) -> bool:
    return _ENTRY_ID.fullmatch(text) is not None and all(int(part) < 1 << 64 for part in text.split("-"))


def _first_id(selection: Selection) -> str:
    # By Redis' clock an entry's ID is never earlier than its `dead_at`, and IDs grow even if that clock goes back.
    return "-" if selection.since is None else f"{max(0, int(selection.since.timestamp() * 1000))}-0"
