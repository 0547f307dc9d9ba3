"""Steps of operators and failovers, which change consumers, acks, positions and entries without the workers."""

import copy
from typing import Any

from hypothesis import strategies as st
from model.foreigners import Foreigners
from model.look import EXPRESS, GROUP, MAIN, by_stream, in_order, lane_of, position, stream_of
from model.machine import one_of
from model.steps import WHICH, step

# The model's attributes for the state of Redis, which a failover resets to the state of the replica.
_IN_REDIS = (
    "here", "pending", "deleted", "lost", "settled", "moved", "live", "standing", "leader", "unread", "unacked", "erased",
    "torn", "newest", "gone_groups",
)  # fmt: skip


class Operators(Foreigners):
    """Commands by hand, and a replica that is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.replica: dict[bytes, tuple[bytes, int]] | None = None
        self.known_to_replica: dict[str, Any] = {}
        self.has_failed_over = False

    @step(2, lambda self: self.pending, which=WHICH)
    def remove_a_live_consumer(self, *, which: int) -> None:
        """XGROUP DELCONSUMER drops the consumer's pending entries, and returns only their number."""
        owners = sorted({hand.owner for hand in self.pending.values()} - {""})
        if owners:
            name = one_of(owners, which)
            dropped = [
                self.run(self.world.redis.xgroup_delconsumer(stream_of(self.keys, lane), GROUP, name))
                for lane in (EXPRESS, MAIN)
                if self.look.last[lane] is not None
            ]
            assert sum(dropped) == len(self.under(name))
            self.clear_away(self.under(name))

    @step(1, lambda self: self.skippable(), which=WHICH, to_the_end=st.booleans())
    def move_the_position_forward(self, *, which: int, to_the_end: bool) -> None:
        """XGROUP SETID, after which reads do not deliver earlier entries."""
        lane = one_of(self.skippable(), which)
        skipped = self.look.undelivered_in(lane)
        if not to_the_end:
            skipped = skipped[: 1 + which % len(skipped)]
        position = "$" if to_the_end else skipped[-1].removesuffix(lane)
        self.run(self.world.redis.xgroup_setid(stream_of(self.keys, lane), GROUP, position))
        self.lost |= set(skipped) - self.settled

    def skippable(self) -> list[str]:
        return [lane for lane in (EXPRESS, MAIN) if self.look.last[lane] and self.look.undelivered_in(lane)]

    @step(1, lambda self: self.pending, which=WHICH)
    def ack_by_hand(self, *, which: int) -> None:
        """Whoever acks an entry that is not stored has finished nothing."""
        entry_id = one_of(sorted(self.pending, key=in_order), which)
        [(stream, ids)] = by_stream(self.keys, [entry_id])
        assert self.run(self.world.redis.xack(stream, GROUP, *ids)) == 1
        self.clear_away([entry_id])

    @step(1, lambda self: self.look.unfinished, which=WHICH)
    def delete_by_hand(self, *, which: int) -> None:
        """The operator deletes entries. Held entries stay with their consumers."""
        entry_id = one_of(sorted(self.look.unfinished & self.look.stream.keys(), key=in_order) or [""], which)
        if not entry_id:
            return
        [(stream, ids)] = by_stream(self.keys, [entry_id])
        assert self.run(self.world.redis.xdel(stream, *ids)) == 1
        self.here[self.look.stream[entry_id]] -= 1
        self.lost.discard(entry_id)
        self.erased.add(entry_id)
        if entry_id in self.pending:
            self.deleted.add(entry_id)
        if entry_id in (self.unread or ()):
            assert self.unread is not None
            self.unread.remove(entry_id)

    # -- a failover -------------------------------------------------------------------------------------------

    @step(2, lambda self: self.replica is None and not self.has_failed_over)
    def fall_behind(self) -> None:
        """From here on the replica gets nothing more."""
        self.replica = self.run(self.all_that_redis_has())
        self.known_to_replica = {name: copy.deepcopy(getattr(self, name)) for name in _IN_REDIS}

    async def all_that_redis_has(self) -> dict[bytes, tuple[bytes, int]]:
        redis = self.world.redis
        return {key: (await redis.dump(key), max(0, await redis.pttl(key))) for key in await redis.keys("*")}  # type: ignore[misc]

    @step(8, lambda self: self.replica is not None and self.held_after_the_replica(), gives_again=st.integers(0, 2))
    def fail_over(self, *, gives_again: int) -> None:
        """The replica takes over without later announcements and acks, and workers continue."""
        assert self.replica is not None
        self.run(self.go_back_to(self.replica))
        for name, knowledge in self.known_to_replica.items():
            setattr(self, name, knowledge)
        self.replica, self.has_failed_over = None, True
        self.missed.clear()
        # Its last batch may have to be added again, which is for the producer to find out.
        self.batches.clear()
        self.producer = type(self.producer)(self.world.redis, "orders")
        for _ in range(gives_again):
            self.all_is_where_it_should_be()
            if self.ids_to_come_again():
                self.give_an_id_again(which=0)

    def held_after_the_replica(self) -> bool:
        """Whether there is something for a failover to lose that a worker holds."""
        newest = self.known_to_replica["newest"]
        held = (entry_id for member in self.members.values() for entry_id in member.held)
        return any(position(entry_id) > position(newest[lane_of(entry_id)]) for entry_id in held)

    async def go_back_to(self, replica: dict[bytes, tuple[bytes, int]]) -> None:
        await self.world.redis.flushall()
        for key, (value, ttl) in replica.items():
            await self.world.redis.restore(key, ttl, value)

    @step(5, lambda self: self.ids_to_come_again(), which=WHICH)
    def give_an_id_again(self, *, which: int) -> None:
        """The new server's clock is behind, so that an entry gets the ID of a lost entry that a worker still holds."""
        entry_id = one_of(self.ids_to_come_again(), which)
        order_id = self.new_order()
        self.notes += 1
        fields: dict[Any, Any] = {"order_id": order_id, "note": self.notes}
        lane = lane_of(entry_id)
        self.run(self.world.redis.xadd(stream_of(self.keys, lane), fields, id=entry_id.removesuffix(lane)))
        self.accept([order_id])

    def ids_to_come_again(self) -> list[str]:
        if not self.has_failed_over:
            return []
        held = {entry_id for member in self.members.values() for entry_id in member.held}
        return sorted((each for each in held if self.look.is_after_all(each)), key=in_order)
