"""Steps of foreign programs, which add entries, read in a separate group, clean up and replay dead letters."""

from typing import Any

from hypothesis import strategies as st
from model.look import AUDIT, EXPRESS, GROUP, MAIN, by_stream, lane_of, stream_of
from model.machine import one_of
from model.steps import LOST, PICK, step
from model.trouble import Trouble

from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.redis.connection import translated

_FEW = 3
_NEW = "a new order"
_FOREIGN: tuple[dict[str, str | bytes], ...] = (
    {"order_id": _NEW, "attempt": "7", "document": "{}"},
    {"order_id": _NEW, "attempt": "many", "enqueued_at": "yesterday"},
    {"order_id": "no\norder id"},
    {"order_id": b"\xff\x00"},
    {"id": "no order id either"},
)


class Foreigners(Trouble):
    """Producers of entries, an auditor, operators."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = 0
        self.calls = 0

    @step(2, lambda self: self.notes < _FEW, fields=st.sampled_from(_FOREIGN), lane=st.sampled_from((EXPRESS, MAIN)))
    def add_by_hand(self, *, fields: dict[str, str | bytes], lane: str) -> None:
        written: dict[Any, Any] = dict(fields)
        if fields.get("order_id") == _NEW:
            written["order_id"] = self.new_order()
        self.notes += 1
        self.run(self.world.redis.xadd(stream_of(self.keys, lane), {**written, "note": self.notes}))
        order_id = written.get("order_id", "")
        self.accept([order_id.decode(errors="replace") if isinstance(order_id, bytes) else order_id])

    # -- a second group -------------------------------------------------------------------------------------

    @step(2, lambda self: self.unread is None and self.look.stream)
    def auditor_comes(self) -> None:
        for lane in (EXPRESS, MAIN):
            self.run(self.world.redis.xgroup_create(stream_of(self.keys, lane), AUDIT, id="0", mkstream=True))
        self.unread = list(self.look.stream)

    @step(5, lambda self: self.unread, count=st.integers(1, 12), acks=st.booleans())
    def auditor_reads(self, *, count: int, acks: bool) -> None:
        assert self.unread is not None
        for lane in (EXPRESS, MAIN):
            stream = stream_of(self.keys, lane)
            reply: Any = self.run(self.world.redis.xreadgroup(AUDIT, "auditor", {stream: ">"}, count=count))
            read = [entry_id.decode() + lane for _, entries in reply for entry_id, _ in entries]
            unread = [entry_id for entry_id in self.unread if lane_of(entry_id) == lane]

            assert read == unread[:count], "all that was announced since it came, in order"
            self.unread = [entry_id for entry_id in self.unread if entry_id not in read]
            self.unacked += read
        if acks:
            self.auditor_acks()

    @step(1, lambda self: self.unacked)
    def auditor_acks(self) -> None:
        for stream, ids in by_stream(self.keys, self.unacked):
            self.run(self.world.redis.xack(stream, AUDIT, *ids))
        self.unacked = []

    @step(1, lambda self: self.unread is not None and self.look.stream)
    def auditor_is_set_back(self) -> None:
        """It reads all entries again, including entries that it has not acked yet."""
        for lane in (EXPRESS, MAIN):
            self.run(self.world.redis.xgroup_setid(stream_of(self.keys, lane), AUDIT, "0"))
        self.unread = list(self.look.stream)

    @step(1, lambda self: self.unread == [] and not self.unacked)
    def auditor_goes(self) -> None:
        for lane in (EXPRESS, MAIN):
            self.run(self.world.redis.xgroup_destroy(stream_of(self.keys, lane), AUDIT))
        self.unread = None

    # -- dead letters ---------------------------------------------------------------------------------------

    @step(2, lambda self: self.look.dead, pick=PICK, lost=LOST)
    def replay(self, *, pick: int, lost: bool) -> None:
        entry_id = one_of(list(self.look.dead), pick)
        record = self.record()
        assert self.run(self.replay_one(entry_id, record)) == 1
        if lost:
            assert self.run(self.replay_one(entry_id, record)) == 1, "it says what the first call has done"
        assert self.run(self.replay_one(entry_id, self.record())) == 0, "another operator comes too late"

    async def replay_one(self, entry_id: str, record: str) -> int:
        """One call of a replay, which is the same call if it is repeated with its record."""
        with translated():
            keys = [self.keys.dead, self.keys.dead_seen, self.keys.express, self.keys.stream, self.keys.erased, record]
            return int(await self.letters._scripts.of(JobKind.REPLAY, "").script(keys, [GROUP, entry_id]))

    def record(self) -> str:
        self.calls += 1
        return f"{self.keys.records}{self.calls}"

    @step(1, lambda self: self.look.dead, is_replay=st.booleans())
    def replay_or_drop_all(self, *, is_replay: bool) -> None:
        kind = JobKind.REPLAY if is_replay else JobKind.DROP
        assert self.run(self.letters.change(kind, Selection(everything=True))).done == len(self.look.dead)
        if not is_replay:
            for token in self.look.dead.values():
                self.here[token] -= 1
