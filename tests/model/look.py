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
local groups, pending, audited, generated = {}, {}, {}, '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  local about = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #about, 2 do
    if about[i] == 'last-generated-id' then generated = about[i + 1] end
  end
  for _, facts in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = {}
    for i = 1, #facts, 2 do group[facts[i]] = facts[i + 1] end
    groups[#groups + 1] = {group.name, group['last-delivered-id']}
    if group.name == ARGV[1] then
      pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000)
    end
    if group.name == ARGV[2] then
      audited = redis.call('XPENDING', KEYS[1], ARGV[2], '-', '+', 10000)
    end
  end
end
local packed = redis.call('HGETALL', KEYS[3])
for i = 2, #packed, 2 do packed[i] = cmsgpack.unpack(packed[i]) end
local time = redis.call('TIME')
return {
  redis.call('XRANGE', KEYS[1], '-', '+'), groups, pending, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), packed,
  redis.call('XRANGE', KEYS[4], '-', '+'), redis.call('ZRANGE', KEYS[5], 0, -1), time[1] * 1000 + time[2] / 1000,
  redis.call('ZRANGE', KEYS[6], 0, -1), redis.call('ZRANGE', KEYS[7], 0, -1),
  redis.call('HMGET', KEYS[8], 'leader', 'until', 'cursor'), audited, generated
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
        generated: the last ID that the stream has given out.
        last: the group's position, the last entry that was handed out; None if there is no group.
        pending: what is handed out.
        settled: what is noted as finished and kept for other groups.
        released: what is listed for anybody to claim.
        retry: what waits for its time (Unix ms), by the ID that it had.
        torn: what waits without a time, or has a time and no fields.
        dead: dead letters.
        alive: who is known by a heartbeat, kept or ended.
        leader: who leads the group's maintenance.
        is_sweep_begun: whether the next page of the sweep goes on where another ended.
        audited: the auditor's position and what it has not acked; None while it is not there.
        now: Redis' clock, Unix ms.
    """

    stream: dict[str, Token]
    generated: str
    last: str | None
    pending: dict[str, Hand]
    settled: set[str]
    released: set[str]
    retry: dict[str, float]
    waiting: dict[str, Token]
    dead: dict[str, Token]
    alive: set[str]
    leader: str | None
    is_sweep_begun: bool
    audited: tuple[str, list[str]] | None
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
    def lost(self) -> set[str]:
        """What was handed out, and is neither pending nor noted as settled: it has left the pending list without an ack."""
        return self.stream.keys() - {*self.undelivered, *self.pending, *self.settled}

    @property
    def unfinished(self) -> set[str]:
        return {*self.undelivered, *self.pending, *self.lost}

    @property
    def finished(self) -> list[str]:
        """What is only kept for other groups."""
        return [entry_id for entry_id in self.stream if entry_id not in self.unfinished]

    @property
    def needed_by_the_auditor_from(self) -> str | None:
        """The first entry that it has to finish."""
        if self.audited is None:
            return None
        position_, unacked = self.audited
        return min([*unacked, *self.after(position_)], key=position, default=None)

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
    names = (
        keys.stream, keys.retry, keys.retry_entries, keys.dead, keys.alive, keys.settled, keys.released, keys.maintenance
    )  # fmt: skip
    reply: Any = await redis.eval(_SCRIPT, len(names), *names, GROUP, AUDIT)
    stream, groups, pending, retry, packed, dead, alive, now, settled, released, about, audited, generated = reply
    last = {name.decode(): last.decode() for name, last in groups}
    leader, until, cursor = (part and part.decode() for part in about)
    return Look(
        stream=_tokens(stream),
        generated=generated.decode(),
        last=last.get(GROUP),
        pending={
            entry_id.decode(): Hand(owner.decode(), count, _idle(milliseconds))
            for entry_id, owner, milliseconds, count in pending
        },
        settled={_unpadded(name.decode()) for name in settled},
        released={entry_id.decode() for entry_id in released},
        retry={name.decode(): float(time) for name, time in _pairs(retry)},
        waiting=_tokens(_pairs(packed)),
        dead=_tokens(dead),
        alive={name.decode() for name in alive},
        leader=leader if leader and float(until) > float(now) else None,
        is_sweep_begun=cursor not in {None, "0-0"},
        audited=(last[AUDIT], [entry_id.decode() for entry_id, *_ in audited]) if AUDIT in last else None,
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
    return {entry_id.decode(): token_of(entry_id.decode(), dict(_pairs(fields))) for entry_id, fields in entries}


def token_of(entry_id: str, fields: Mapping[bytes, bytes]) -> Token:
    """By what the announcement in an entry is known, wherever that goes."""
    order_id = fields.get(b"order_id", b"").decode(errors="replace")
    if note := fields.get(b"note"):
        return Token(order_id, 0, note.decode())
    first = fields.get(b"first_enqueued_at") or fields.get(b"enqueued_at") or entry_id.partition("-")[0]
    return Token(order_id, int(first))


def _unpadded(name: str) -> str:
    milliseconds, _, sequence = name.partition("-")
    return f"{int(milliseconds)}-{int(sequence)}"


def _idle(milliseconds: int) -> Idle:
    if milliseconds < 0 or milliseconds > _YEARS:
        return Idle.GIVEN_BACK
    return Idle.SILENT if milliseconds >= LEASE * 1000 else Idle.FRESH
