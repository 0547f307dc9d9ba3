"""Reads the state of a queue in Redis at one moment in one step, without the product's code."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import EntryRef
from ingest.queue.layout.keys import Keys

GROUP = "ingest"
AUDIT = "audit"
LEASE = 3600.0
# Only released entries are idle for this long, because they count as idle since 1970 or have no consumer.
_YEARS = 10**11

_SCRIPT = """
local function look_at_lane(stream, settled, released)
  local groups, pending, audited, generated = {}, {}, {}, '0-0'
  if redis.call('EXISTS', stream) == 1 then
    local about = redis.call('XINFO', 'STREAM', stream)
    for i = 1, #about, 2 do
      if about[i] == 'last-generated-id' then generated = about[i + 1] end
    end
    for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
      local group = {}
      for i = 1, #facts, 2 do group[facts[i]] = facts[i + 1] end
      groups[#groups + 1] = {group.name, group['last-delivered-id']}
      if group.name == ARGV[1] then
        pending = redis.call('XPENDING', stream, ARGV[1], '-', '+', 10000)
      end
      if group.name == ARGV[2] then
        audited = redis.call('XPENDING', stream, ARGV[2], '-', '+', 10000)
      end
    end
  end
  return {
    redis.call('XRANGE', stream, '-', '+'), groups, pending, audited, generated,
    redis.call('ZRANGE', settled, 0, -1), redis.call('ZRANGE', released, 0, -1)
  }
end
local packed = redis.call('HGETALL', KEYS[2])
for i = 2, #packed, 2 do packed[i] = cmsgpack.unpack(packed[i]) end
local time = redis.call('TIME')
return {
  redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), packed, redis.call('XRANGE', KEYS[3], '-', '+'),
  redis.call('ZRANGE', KEYS[4], 0, -1), time[1] * 1000 + time[2] / 1000,
  redis.call('HMGET', KEYS[5], 'leader', 'until', 'cursor', 'express_cursor'),
  look_at_lane(KEYS[6], KEYS[7], KEYS[8]), look_at_lane(KEYS[9], KEYS[10], KEYS[11])
}
"""
# The lanes by the suffix of an entry ID in the model, because IDs are only unique within a lane.
EXPRESS, MAIN = "/express", ""


def lane_of(name: str) -> str:
    """The lane of an entry with this name in the model."""
    return EXPRESS if name.endswith(EXPRESS) else MAIN


def stream_of(keys: Keys, lane: str) -> str:
    """The key of a lane's stream."""
    return keys.express if lane == EXPRESS else keys.stream


def name_of(entry: EntryRef) -> str:
    """The name of an entry in the model."""
    return entry.id + (EXPRESS if entry.stream.endswith(":express") else MAIN)


def refs(keys: Keys, names: Iterable[str]) -> list[EntryRef]:
    """Entries as the queue names them."""
    return [EntryRef(stream_of(keys, lane_of(name)), name.removesuffix(lane_of(name))) for name in names]


def by_stream(keys: Keys, names: Iterable[str]) -> list[tuple[str, list[Any]]]:
    """The IDs of entries, for each stream that has any of them."""
    found: dict[str, list[Any]] = {}
    for entry in refs(keys, names):
        found.setdefault(entry.stream, []).append(entry.id)
    return list(found.items())


class Idle(StrEnum):
    """The idle time of an entry."""

    FRESH = "fresh"
    STALE = "stale"
    RELEASED = "released"


@dataclass(frozen=True)
class Hand:
    """The consumer of a delivered entry, or an empty text without one, and the number of deliveries."""

    owner: str
    count: int
    idle: Idle = Idle.FRESH


@dataclass(frozen=True, order=True)
class Token:
    """The identity of an announcement in all of its entries: the order and its first announcement, or its note."""

    order_id: str
    first: int
    note: str = ""


@dataclass(frozen=True)
class Look:
    """The queue at one moment.

    Attributes:
        stream: all entries of the express lane, and then all of the main one, each in order.
        generated: the last entry ID that each lane's stream has generated.
        last: the group's last delivered entry in each lane, or None without a group.
        pending: delivered entries.
        settled: entries that are recorded as finished and kept for other groups.
        released: entries that are listed for any consumer to claim.
        retry: due times (Unix ms) of scheduled retries by their former ID.
        torn: retries with only a time or only fields.
        dead: dead letters.
        alive: consumers with a current or expired heartbeat.
        leader: the leader of the group's maintenance.
        is_sweep_begun: whether the next page of the sweep continues a previous one.
        audited: the auditor's position in each lane and its pending entries, or None without an auditor.
        now: Redis' clock in Unix ms.
    """

    stream: dict[str, Token]
    generated: dict[str, str]
    last: dict[str, str | None]
    pending: dict[str, Hand]
    settled: set[str]
    released: set[str]
    retry: dict[str, float]
    waiting: dict[str, Token]
    dead: dict[str, Token]
    alive: set[str]
    leader: str | None
    is_sweep_begun: bool
    audited: tuple[dict[str, str], list[str]] | None
    now: float

    @property
    def torn(self) -> set[str]:
        return self.retry.keys() ^ self.waiting.keys()

    def after(self, entry_id: str) -> list[str]:
        """The entries that were added to the same lane after this entry."""
        lane = lane_of(entry_id)
        return [each for each in self.stream if lane_of(each) == lane and position(each) > position(entry_id)]

    def is_after_all(self, entry_id: str) -> bool:
        """Whether an entry of that ID could be added to its lane."""
        return position(entry_id) > position(self.generated[lane_of(entry_id)])

    @property
    def has_group(self) -> bool:
        return None not in self.last.values()

    def undelivered_in(self, lane: str) -> list[str]:
        return self.after(self.last[lane] or "0-0" + lane)

    @property
    def undelivered(self) -> list[str]:
        return [*self.undelivered_in(EXPRESS), *self.undelivered_in(MAIN)]

    @property
    def lost(self) -> set[str]:
        """Delivered entries that are neither pending nor settled, so that they have left the pending list unacked."""
        return self.stream.keys() - {*self.undelivered, *self.pending, *self.settled}

    @property
    def unfinished(self) -> set[str]:
        return {*self.undelivered, *self.pending, *self.lost}

    @property
    def finished(self) -> list[str]:
        """Entries that are only kept for other groups."""
        return [entry_id for entry_id in self.stream if entry_id not in self.unfinished]

    def is_needed_by_the_auditor_since(self, entry_id: str) -> bool:
        """Whether the auditor has to finish an entry of that lane which is not after this one."""
        if self.audited is None:
            return False
        lane = lane_of(entry_id)
        positions, unacked = self.audited
        needed = [*(each for each in unacked if lane_of(each) == lane), *self.after(positions[lane])]
        return any(position(each) <= position(entry_id) for each in needed)

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
    names = [keys.retry, keys.retry_entries, keys.dead, keys.alive, keys.maintenance]
    names += [keys.express, keys.express_settled, keys.express_released, keys.stream, keys.settled, keys.released]
    reply: Any = await redis.eval(_SCRIPT, len(names), *names, GROUP, AUDIT)
    retry, packed, dead, alive, now, about, *found = reply
    leader, until, *cursors = (part and part.decode() for part in about)
    lanes = [_Lane(lane, *each) for lane, each in zip((EXPRESS, MAIN), found, strict=True)]
    is_audited = all(lane.position_of(AUDIT) is not None for lane in lanes)
    return Look(
        stream={name: token for lane in lanes for name, token in lane.tokens().items()},
        generated={lane.name: lane.generated.decode() + lane.name for lane in lanes},
        last={lane.name: lane.position_of(GROUP) for lane in lanes},
        pending={name: hand for lane in lanes for name, hand in lane.hands().items()},
        settled={_unpadded(name.decode()) + lane.name for lane in lanes for name in lane.settled},
        released={entry_id.decode() + lane.name for lane in lanes for entry_id in lane.released},
        retry={_text(name): float(time) for name, time in _pairs(retry)},
        waiting=_tokens(_pairs(packed)),
        dead=_tokens(dead),
        alive={name.decode() for name in alive},
        leader=leader if leader and float(until) > float(now) else None,
        is_sweep_begun=not set(cursors) <= {None, "0-0"},
        audited=(
            {lane.name: lane.position_of(AUDIT) or "" for lane in lanes},
            [entry_id.decode() + lane.name for lane in lanes for entry_id, *_ in lane.audited],
        )
        if is_audited
        else None,
        now=float(now),
    )


@dataclass(frozen=True)
class _Lane:
    """The state of one lane in Redis."""

    name: str
    entries: list[Any]
    groups: list[Any]
    pending: list[Any]
    audited: list[Any]
    generated: bytes
    settled: list[bytes]
    released: list[bytes]

    def tokens(self) -> dict[str, Token]:
        return {name + self.name: token for name, token in _tokens(self.entries).items()}

    def hands(self) -> dict[str, Hand]:
        return {
            entry_id.decode() + self.name: Hand(owner.decode(), count, _idle(milliseconds))
            for entry_id, owner, milliseconds, count in self.pending
        }

    def position_of(self, group: str) -> str | None:
        return next((last.decode() + self.name for name, last in self.groups if name.decode() == group), None)


@cache
def position(entry_id: str) -> tuple[int, int]:
    """An entry as it is ordered in its lane."""
    milliseconds, _, sequence = entry_id.removesuffix(EXPRESS).partition("-")
    return int(milliseconds), int(sequence)


def in_order(name: str) -> tuple[int, int, str]:
    """Sorts entries of both lanes, always in the same way."""
    return *position(name), lane_of(name)


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _tokens(entries: Iterable[tuple[bytes, list[bytes]]]) -> dict[str, Token]:
    return {_text(entry_id): token_of(_text(entry_id), dict(_pairs(fields))) for entry_id, fields in entries}


def _text(name: bytes) -> str:
    """A name in the retry set, which may contain an arbitrary order ID."""
    return name.decode(errors="surrogateescape")


def token_of(entry_id: str, fields: Mapping[bytes, bytes]) -> Token:
    """The identity of the announcement in an entry."""
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
        return Idle.RELEASED
    return Idle.STALE if milliseconds >= LEASE * 1000 else Idle.FRESH
