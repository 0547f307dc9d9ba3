"""Steps of producers and workers without faults, except for lost replies."""

from hypothesis import strategies as st
from model.look import EXPRESS, MAIN, Hand, Idle, lane_of, name_of, refs
from model.machine import Machine, one_of
from model.steps import LOST, PICK, SOME, WHICH, step

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.entry_fields import SEEN_KEY
from ingest.queue.produce.submission import BATCH, submissions

_ENOUGH = 12
_LETTERS = str.maketrans("0123456789", "abcdefghij")


class Work(Machine):
    """Announcing, reading, committing, acking, moving, releasing."""

    # -- producers ------------------------------------------------------------------------------------------

    @step(
        4,
        lambda self: len(self.look.stream) < _ENOUGH,
        new=st.integers(1, 2),
        again=st.lists(WHICH, max_size=2),
        lost=LOST,
    )
    def enqueue(self, *, new: int, again: list[int], lost: bool) -> None:
        """New orders, and some changed ones, preferably orders that a worker has fetched and not stored."""
        in_work = [row.order_id for member in self.members.values() for row in member.rows.values()]
        known = in_work or list(self.versions)
        self.announce([self.new_order() for _ in range(new)] + [one_of(known, pick) for pick in again])
        if lost:
            self.enqueue_again()

    @step(1, lambda self: self.batches and not self.is_batch_repeated)
    def enqueue_again(self) -> None:
        """The reply to the last batch was lost, possibly long ago."""
        self.is_batch_repeated = True
        again = submissions(self.batches[-1], None, BATCH)
        [producer] = self.producer._queue._producers.values()
        self.run(producer._main._slot.add(len(self.batches) - 1, again, lambda: None))

    @step(3, lambda self: len(self.look.stream) < _ENOUGH, again=st.lists(WHICH, min_size=1, max_size=3))
    def announce_coalesced(self, *, again: list[int]) -> None:
        """Orders have changed and are announced. Orders that already wait will be fetched in their new version."""
        order_ids = [one_of(list(self.versions), pick) for pick in again]
        for order_id in order_ids:
            self.versions[order_id] += 1
        waiting = [self.look.stream[entry_id] for entry_id in self.look.undelivered_in(MAIN)]
        accepted = self.run(self.producer.try_announce(order_ids, coalesce=3600))
        self.batches.append(order_ids)
        self.is_batch_repeated = True

        look = self.see()
        added = [look.stream[entry_id].order_id for entry_id in look.after(self.newest[MAIN])]
        assert accepted == Accepted(len(added), len(order_ids) - len(added))
        assert len(added) == len(set(added)), "one of a call is enough"
        assert set(order_ids) - set(added) <= {token.order_id for token in waiting}
        # Announcements of an order within a millisecond have one token, and a worker may have fetched the former version for another one.
        delivered = {look.stream[entry_id] for entry_id in self.pending if entry_id in look.stream}
        for token in waiting:
            if token.order_id in order_ids and token not in delivered:
                self.promised[token] = self.versions[token.order_id]
        self.accept(added)

    # -- reading --------------------------------------------------------------------------------------------

    # An empty read would only wait.
    @step(9, lambda self: self.look.undelivered or not self.look.has_group, pick=PICK, count=SOME, lost=LOST)
    def read(self, *, pick: int, count: int, lost: bool) -> None:
        name = one_of(self.awake(), pick)
        before = self.look
        taken = self.run(self.members[name].consumer.read(count, 0.001))

        excess = self.released_at_once(name, [name_of(delivery.entry) for delivery in taken])
        given = [*(name_of(delivery.entry) for delivery in taken), *excess]
        assert not self.pending.keys() & set(given), "never what somebody holds"
        assert len(taken) == min(count, len(before.undelivered))
        for lane in (EXPRESS, MAIN):
            in_lane = [entry_id for entry_id in given if lane_of(entry_id) == lane]
            assert in_lane == before.undelivered_in(lane)[: len(in_lane)], "in order, and nothing is passed over"
        self.pending |= dict.fromkeys(excess, Hand(self.owner_of_released(name), 0, Idle.RELEASED))
        self.hand_over(name, taken, lost=lost)

    def released_at_once(self, name: str, taken: list[str]) -> list[str]:
        """The entries of both lanes that one command has read beyond the requested number, in order."""
        after = self.see()
        owner = self.owner_of_released(name)
        return [
            entry_id
            for entry_id, hand in after.pending.items()
            if entry_id not in taken
            and hand.idle is Idle.RELEASED
            and hand.owner == owner
            and (entry_id not in self.pending or self.pending[entry_id] != hand)
        ]

    # -- settling -------------------------------------------------------------------------------------------

    @step(9, lambda self: self.storers(), pick=PICK, which=WHICH, most=SOME, lost=LOST)
    def commit(self, *, pick: int, which: int, most: int, lost: bool) -> None:
        member = self.members[one_of(self.storers(), pick)]
        start = which % len(member.storable())
        entry_ids = member.storable()[start:][:most]
        rows = [member.rows[entry_id] for entry_id in entry_ids]
        for _ in range(1 + lost):
            self.run(self.world.store.upsert(rows))
        member.committed.update(entry_ids)

        for row in rows:
            self.table[row.order_id] = max(_version(row.status), self.table.get(row.order_id, 0))
        assert self.run(self.stored()) == self.table, "the newest version that anybody has committed"

    async def stored(self) -> dict[str, int]:
        rows = await self.world.sql.fetch(
            "SELECT order_id, status FROM orders WHERE order_id = ANY ($1)", list(self.versions)
        )
        return {row["order_id"]: _version(row["status"]) for row in rows}

    @step(10, lambda self: self.committers(), pick=PICK, lost=LOST)
    def ack(self, *, pick: int, lost: bool) -> None:
        member = self.members[one_of(self.committers(), pick)]
        entry_ids = sorted(member.committed)
        owned = [entry_id for entry_id in entry_ids if entry_id in self.owned_by(member.consumer.name)]

        assert self.run(member.consumer.ack(refs(self.keys, entry_ids))) == len(owned), (
            "what it no longer owns comes again"
        )
        for entry_id in owned:
            self.finish(entry_id)
        if not lost:
            for entry_id in entry_ids:
                member.drop(entry_id)

    @step(4, lambda self: self.undecided(), pick=PICK, which=WHICH, later=st.sampled_from((0.0, 3600.0)), lost=LOST)
    def reschedule(self, *, pick: int, which: int, later: float, lost: bool) -> None:
        name = one_of(self.undecided(), pick)
        delivery = one_of(self.members[name].undecided(), which)
        is_owned, is_gone = name_of(delivery.entry) in self.owned_by(name), self.is_gone(delivery)
        consumer = self.members[name].consumer
        is_moved = self.run(consumer.reschedule(delivery, later, delivery.attempt + 1))

        assert is_moved == (is_owned or is_gone), "only who holds an entry moves it, or all that there is of it"
        if is_owned:
            self.take_from_stream(name_of(delivery.entry))
        if is_moved:
            self.schedule(delivery)
        self.after_move(name, delivery, lost=lost)

    @step(4, lambda self: self.undecided(), pick=PICK, which=WHICH, lost=LOST)
    def dead_letter(self, *, pick: int, which: int, lost: bool) -> None:
        name = one_of(self.undecided(), pick)
        delivery = one_of(self.members[name].undecided(), which)
        self.settle_as_dead(name, delivery)
        self.after_move(name, delivery, lost=lost)

    def settle_as_dead(self, name: str, delivery: Delivery) -> None:
        reason = DeadReason.NOT_FOUND if delivery.order_id else DeadReason.INVALID_MESSAGE
        is_owned, is_gone = name_of(delivery.entry) in self.owned_by(name), self.is_gone(delivery)
        # Each entry has another error, because an order that dies again in the same way is counted by its dead letter.
        error = name_of(delivery.entry).translate(_LETTERS)
        # Its dead letter from a move that was refused half-way counts it, instead of a second one.
        letters = [fields for _, fields in self.run(self.world.redis.xrange(self.keys.dead))]
        is_doubled = any(SEEN_KEY in fields and fields[b"error"] == error.encode() for fields in letters)
        is_moved = self.run(self.members[name].consumer.dead_letter(delivery, reason, error))

        assert is_moved == is_owned, "only who holds an entry moves it"
        if is_owned:
            self.take_from_stream(name_of(delivery.entry))
            self.here[self.token(delivery)] += not is_doubled
            self.moved.add((name_of(delivery.entry), delivery.order_id or ""))
        elif is_gone:
            self.schedule(delivery)

    def take_from_stream(self, entry_id: str) -> None:
        if entry_id not in self.deleted:
            self.here[self.look.stream[entry_id]] -= 1
        self.leave_pending(entry_id)

    def after_move(self, name: str, delivery: Delivery, *, lost: bool) -> None:
        if not lost:
            self.members[name].drop(name_of(delivery.entry))

    @step(3, lambda self: self.look.retry, pick=PICK, most=SOME, much_later=st.booleans())
    def move_due(self, *, pick: int, most: int, much_later: bool) -> None:
        due = list(self.look.retry) if much_later else self.look.due
        if much_later:
            names = [name.encode(errors="surrogateescape") for name in due]
            self.run(self.world.redis.zadd(self.keys.retry, dict.fromkeys(names, 0)))
        moved = self.run(self.members[one_of(self.awake(), pick)].consumer.move_due(most))
        assert moved == min(most, len(due))

    # -- releasing ------------------------------------------------------------------------------------------

    @step(3, lambda self: self.holders(), pick=PICK, lost=LOST)
    def release(self, *, pick: int, lost: bool) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        gone = [delivery for delivery in member.held.values() if self.is_gone(delivery)]
        # After a failover, an ID may be another order's, whose entry stays as it is.
        replaced = {
            entry_id
            for entry_id, delivery in member.held.items()
            if self.look.stream.get(entry_id, self.token(delivery)) != self.token(delivery)
        }
        under = member.held.keys() & self.under(name) - replaced
        # Deleted while held, so that released entries must not vanish.
        deleted = self.deleted & member.held.keys() & self.owned_by(name)
        released = self.run(member.consumer.release(list(member.held.values())))

        assert released == len(under - deleted), "what others have is not released"
        for entry_id in member.held.keys() & self.owned_by(name) - deleted - replaced:
            owner = self.owner_of_released(name)
            self.pending[entry_id] = Hand(owner, max(0, self.pending[entry_id].count - 1), Idle.RELEASED)
        for entry_id in deleted:
            self.leave_pending(entry_id)
        for delivery in [*gone, *(member.held[entry_id] for entry_id in deleted)]:
            self.schedule(delivery)
        if not lost:
            for entry_id in list(member.held):
                member.drop(entry_id)


def _version(status: str) -> int:
    return int(status.removeprefix("version "))
