"""What Redis holds of a queue at one moment: read in one step, by none of the product's code."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from redis.asyncio import Redis

from ingest.queue.keys import Keys

GROUP = "ingest"
AUDIT = "audit"
LEASE = 3600.0
# Nothing is silent for so long but what was given back: that counts as silent since 1970, or is nobody's.
_YEARS = 10**11

_SCRIPT = """
local groups, pending = {}, {}
if redis.call('EXISTS', KEYS[1]) == 1 then
  for _, facts in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = {}
    for i = 1, #facts, 2 do group[facts[i]] = facts[i + 1] end
    groups[#groups + 1] = {group.name, group['last-delivered-id']}
    if group.name == ARGV[1] then
      pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000)
    end
  end
end
local packed = redis.call('HGETALL', KEYS[3])
for i = 2, #packed, 2 do packed[i] = cmsgpack.unpack(packed[i]) end
local time = redis.call('TIME')
return {
  redis.call('XRANGE', KEYS[1], '-', '+'), groups, pending, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), packed,
  redis.call('XRANGE', KEYS[4], '-', '+'), redis.call('ZRANGE', KEYS[5], 0, -1), time[1] * 1000 + time[2] / 1000
}
"""


class Idle(StrEnum):
    """How long nobody was heard of an entry."""

    FRESH = "fresh"
    SILENT = "silent"
    GIVEN_BACK = "given back"


@dataclass(frozen=True)
class Hand:
    """In whose hand a delivered entry is (in nobody's: empty), and for the how manieth time it was handed over."""

    owner: str
    count: int
    idle: Idle = Idle.FRESH


@dataclass(frozen=True, order=True)
class Token:
    """By what one announcement is known wherever its entry goes: the order and when it was first announced, or its note."""

    order_id: str
    first: int
    note: str = ""


@dataclass(frozen=True)
class Look:
    """The queue at one moment.

    Attributes:
        stream: all entries in the stream, in order.
        last: the last entry that was handed out; None if there is no group.
        pending: what is handed out.
        retry: what waits for its time (Unix ms), by the ID that it had.
        torn: what waits without a time, or has a time and no fields.
        dead: dead letters.
        alive: who is known by a heartbeat, kept or ended.
        now: Redis' clock, Unix ms.
    """

    stream: dict[str, Token]
    last: str | None
    pending: dict[str, Hand]
    retry: dict[str, float]
    waiting: dict[str, Token]
    dead: dict[str, Token]
    alive: set[str]
    now: float

    @property
    def torn(self) -> set[str]:
        return self.retry.keys() ^ self.waiting.keys()

    def after(self, entry_id: str) -> list[str]:
        """What was added after that entry."""
        return [later for later in self.stream if position(later) > position(entry_id)]

    @property
    def undelivered(self) -> list[str]:
        return self.after(self.last or "0-0")

    @property
    def unfinished(self) -> set[str]:
        return {*self.undelivered, *self.pending}

    @property
    def finished(self) -> list[str]:
        """What is only kept for other groups."""
        return [entry_id for entry_id in self.stream if entry_id not in self.unfinished]

    @property
    def due(self) -> list[str]:
        return [entry_id for entry_id, time in self.retry.items() if time <= self.now]

    def tokens(self) -> Counter[Token]:
        """How often each announcement is somewhere, finished ones aside."""
        unfinished = self.unfinished
        in_stream = (token for entry_id, token in self.stream.items() if entry_id in unfinished)
        scheduled = (token for entry_id, token in self.waiting.items() if entry_id in self.retry)
        return Counter([*in_stream, *scheduled, *self.dead.values()])

    def held_by(self, name: str) -> list[str]:
        return [entry_id for entry_id, hand in self.pending.items() if hand.owner == name]


async def look_at(redis: Redis, keys: Keys) -> Look:
    """See all of the queue."""
    names = (keys.stream, keys.retry, keys.retry_entries, keys.dead, keys.alive)
    reply: Any = await redis.eval(_SCRIPT, len(names), *names, GROUP)
    stream, groups, pending, retry, packed, dead, alive, now = reply
    last = {name.decode(): last.decode() for name, last in groups}
    return Look(
        stream=_tokens(stream),
        last=last.get(GROUP),
        pending={
            entry_id.decode(): Hand(owner.decode(), count, _idle(milliseconds))
            for entry_id, owner, milliseconds, count in pending
        },
        retry={entry_id.decode(): float(time) for entry_id, time in _pairs(retry)},
        waiting=_tokens(_pairs(packed)),
        dead=_tokens(dead),
        alive={name.decode() for name in alive},
        now=float(now),
    )


@cache
def position(entry_id: str) -> tuple[int, int]:
    """An entry ID as it is ordered."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _tokens(entries: Iterable[tuple[bytes, list[bytes]]]) -> dict[str, Token]:
    return {entry_id.decode(): _token(entry_id.decode(), dict(_pairs(fields))) for entry_id, fields in entries}


def _token(entry_id: str, fields: Mapping[bytes, bytes]) -> Token:
    order_id = fields.get(b"order_id", b"").decode(errors="replace")
    if note := fields.get(b"note"):
        return Token(order_id, 0, note.decode())
    first = fields.get(b"first_enqueued_at") or fields.get(b"enqueued_at") or entry_id.partition("-")[0]
    return Token(order_id, int(first))


def _idle(milliseconds: int) -> Idle:
    if milliseconds < 0 or milliseconds > _YEARS:
        return Idle.GIVEN_BACK
    return Idle.SILENT if milliseconds >= LEASE * 1000 else Idle.FRESH
