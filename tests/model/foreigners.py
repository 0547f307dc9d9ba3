"""What others do with the queue: they add entries by hand, read it in a group of their own, tidy up, replay dead letters."""

from typing import Any

from hypothesis import strategies as st
from model.look import AUDIT, GROUP
from model.machine import one_of
from model.steps import LOST, PICK, step
from model.trouble import Trouble

from ingest.domain.dead_letter import Selection
from ingest.queue.connection import translated

_FEW = 3
_NEW = "a new order"
_FOREIGN: tuple[dict[str, str | bytes], ...] = (
    {"order_id": _NEW, "attempt": "7", "document": "{}"},
    {"order_id": _NEW, "attempt": "many", "enqueued_at": "yesterday"},
    {"order_id": "no order id"},
    {"order_id": b"\xff\x00"},
    {"id": "no order id either"},
)


class Strangers(Trouble):
    """Producers of entries, an auditor, operators."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = 0
        self.receipts = 0

    @step(1, lambda self: self.notes < _FEW, fields=st.sampled_from(_FOREIGN))
    def add_by_hand(self, *, fields: dict[str, str | bytes]) -> None:
        written: dict[Any, Any] = dict(fields)
        if fields.get("order_id") == _NEW:
            written["order_id"] = self.new_order()
        self.notes += 1
        self.run(self.world.redis.xadd(self.keys.stream, {**written, "note": self.notes}))
        order_id = written.get("order_id", "")
        self.accept([order_id.decode(errors="replace") if isinstance(order_id, bytes) else order_id])

    # -- a second group -------------------------------------------------------------------------------------

    @step(2, lambda self: self.unread is None and self.look.stream)
    def auditor_comes(self) -> None:
        self.run(self.world.redis.xgroup_create(self.keys.stream, AUDIT, id="0"))
        self.unread = list(self.look.stream)

    @step(5, lambda self: self.unread, count=st.integers(1, 12), acks=st.booleans())
    def auditor_reads(self, *, count: int, acks: bool) -> None:
        assert self.unread is not None
        reply: Any = self.run(self.world.redis.xreadgroup(AUDIT, "auditor", {self.keys.stream: ">"}, count=count))
        read = [entry_id.decode() for _, entries in reply for entry_id, _ in entries]

        assert read == self.unread[:count], "all that was announced since it came, in order"
        del self.unread[:count]
        self.unacked += read
        if acks:
            self.auditor_acks()

    @step(1, lambda self: self.unacked)
    def auditor_acks(self) -> None:
        self.run(self.world.redis.xack(self.keys.stream, AUDIT, *self.unacked))
        self.unacked = []

    @step(1, lambda self: self.unread is not None and self.look.stream)
    def auditor_is_set_back(self) -> None:
        """It reads all that there is again, also what it has not acked yet."""
        self.run(self.world.redis.xgroup_setid(self.keys.stream, AUDIT, "0"))
        self.unread = list(self.look.stream)

    @step(1, lambda self: self.unread == [] and not self.unacked)
    def auditor_goes(self) -> None:
        self.run(self.world.redis.xgroup_destroy(self.keys.stream, AUDIT))
        self.unread = None

    # -- dead letters ---------------------------------------------------------------------------------------

    @step(2, lambda self: self.look.dead, pick=PICK, lost=LOST)
    def replay(self, *, pick: int, lost: bool) -> None:
        entry_id = one_of(list(self.look.dead), pick)
        receipt = self.receipt()
        assert self.run(self.replay_one(entry_id, receipt)) == 1
        if lost:
            assert self.run(self.replay_one(entry_id, receipt)) == 1, "it says what the first call has done"
        assert self.run(self.replay_one(entry_id, self.receipt())) == 0, "another operator comes too late"

    async def replay_one(self, entry_id: str, receipt: str) -> int:
        """One call of a replay; repeated with its receipt, it is the same call."""
        with translated():
            return int(await self.letters._replay([self.keys.dead, self.keys.stream, receipt], [GROUP, entry_id]))

    def receipt(self) -> str:
        self.receipts += 1
        return f"{self.keys.receipts}{self.receipts}"

    @step(1, lambda self: self.look.dead, is_replay=st.booleans())
    def replay_or_drop_all(self, *, is_replay: bool) -> None:
        call = self.letters.replay if is_replay else self.letters.drop
        assert self.run(call(Selection(everything=True))).done == len(self.look.dead)
        if not is_replay:
            for token in self.look.dead.values():
                self.here[token] -= 1
