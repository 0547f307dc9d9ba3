"""Steps in which entries change their consumer: heartbeats, renewals, the sweep, and reclaiming."""

from hypothesis import strategies as st
from model.look import LEASE, Hand, Idle, Look, lane_of, name_of, refs
from model.machine import Machine, one_of
from model.steps import LOST, PICK, SOME, step

from ingest.domain.deliveries.delivery import EntryRef

_ALL = 1000
# The smallest page with which a sweep progresses, a page that ends between any two entries, and a page for all entries.
_PAGES = (2, 3, 5, 100)


class Claims(Machine):
    """The rules for claims between consumers."""

    @step(2, lambda self: set(self.awake()) - self.live, pick=PICK, lost=LOST)
    def renew_heartbeat(self, *, pick: int, lost: bool) -> None:
        name = one_of(sorted(set(self.awake()) - self.live), pick)
        consumer = self.members[name].consumer

        assert self.heartbeat(name, consumer), "it learns that others may have taken it for dead"
        assert not lost or not self.heartbeat(name, consumer)

    @step(2, lambda self: self.live - self.standing, pick=PICK)
    def keep_beating_for_a_lifetime(self, *, pick: int) -> None:
        name = one_of(sorted(self.live - self.standing), pick)

        assert not self.heartbeat(name, self.members[name].consumer), "nobody has taken it for dead"
        self.mature(name)

    @step(1, lambda self: self.leader in self.awake(), pick=PICK)
    def lose_the_leader(self, *, pick: int) -> None:
        """The leader dies. The next consumer with a heartbeat leads, and its sweep continues where the last ended."""
        leader = self.leader
        assert leader is not None
        self.become_stale(leader)
        self.members[leader] = self.newcomer(leader)
        heirs = sorted(self.live & set(self.awake()))
        if heirs:
            assert not self.heartbeat(one_of(heirs, pick), self.members[one_of(heirs, pick)].consumer)

    @step(3, lambda self: self.holders(), pick=PICK, lost=LOST)
    def renew(self, *, pick: int, lost: bool) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        others = self.pending.keys() - self.owned_by(name) - self.released()
        gone = {name_of(entry) for entry in self.run(member.consumer.renew(refs(self.keys, member.held)))}

        assert gone == member.held.keys() & others, "it learns exactly what others have"
        for entry_id in member.held.keys() & self.owned_by(name):
            self.pending[entry_id] = Hand(name, self.pending[entry_id].count)
        if not lost:
            for entry_id in gone:
                member.drop(entry_id)

    @step(3, lambda self: self.successors(), pick=PICK, count=SOME, lost=LOST, counted=st.booleans())
    def claim_own(self, *, pick: int, count: int, lost: bool, counted: bool) -> None:
        name = one_of(self.successors(), pick)
        member = self.members[name]
        left = [entry_id for entry_id in self.look.held_by(name) if entry_id not in member.held]
        released = self.released()
        taken = self.run(member.consumer.claim_own(count, refs(self.keys, member.held), counted=counted))

        entry_ids = [name_of(delivery.entry) for delivery in taken]
        there = [entry_id for entry_id in left if entry_id not in self.deleted]
        # Of one lane at a time, the express lane first.
        there = [entry_id for entry_id in there if lane_of(entry_id) == lane_of(there[0])]
        # Of deleted entries it only removes the records, each instead of an entry that it could have claimed.
        assert entry_ids == there[: len(entry_ids)]
        assert len(entry_ids) == min(count, len(there)) or (self.deleted & set(left) and entry_ids) or not there
        for delivery in taken:
            if not counted and name_of(delivery.entry) not in released:
                hand = self.pending[name_of(delivery.entry)]
                self.pending[name_of(delivery.entry)] = Hand(name, hand.count - 1)
        self.hand_over(name, taken, lost=lost)

    # -- abandoned entries ------------------------------------------------------------------------------------

    @step(5, lambda self: self.abandoned_now(), pick=PICK, count=SOME, lost=LOST)
    def claim_abandoned(self, *, pick: int, count: int, lost: bool) -> None:
        self.take_over(one_of(self.awake(), pick), count, lost=lost)

    @step(5, lambda self: self.standing and self.holders(), pick=PICK, heir=PICK)
    def be_taken_for_dead(self, *, pick: int, heir: int) -> None:
        """Its heartbeat ends and another consumer reclaims. It continues with the same entries."""
        self.become_stale(one_of(self.holders(), pick))
        self.all_is_where_it_should_be()
        heirs = [name for name in self.awake() if name in self.standing]
        if heirs:
            self.take_over(one_of(heirs, heir), _ALL, lost=False)

    def abandoned_now(self) -> object:
        return self.look.alive - self.live or self.look.released

    def take_over(self, name: str, count: int, *, lost: bool) -> None:
        released = self.released()
        dead = self.look.alive - self.live if name in self.standing else set()
        orphaned = {entry_id for entry_id, hand in self.pending.items() if hand.owner in dead}
        listed = len(self.look.released)
        found = self.run(self.members[name].consumer.claim_abandoned(count))

        taken = [*found.released, *found.dead]
        entry_ids = [name_of(delivery.entry) for delivery in taken]
        assert len(set(entry_ids)) == len(entry_ids) <= count
        assert {name_of(delivery.entry) for delivery in found.released} <= released
        assert {name_of(delivery.entry) for delivery in found.dead} <= orphaned, "of the dead, by who has standing"
        # Records of deleted entries, and notes of entries that are no longer released, are removed.
        if len(taken) < count and listed <= count and not self.deleted:
            assert set(entry_ids) == released | orphaned, "all that is abandoned is found"
        self.hand_over(name, taken, lost=lost)

    # -- the sweep --------------------------------------------------------------------------------------------

    @step(3, lambda self: self.awake(), pick=PICK, page=st.sampled_from(_PAGES))
    def sweep(self, *, pick: int, page: int) -> None:
        """One page of the sweep by any member at any time. The leader may have changed twice since the last page."""
        self.sweep_a_page(one_of(self.awake(), pick), page)

    @step(1, lambda self: self.lost or self.stale(), pick=PICK, page=st.sampled_from(_PAGES))
    def sweep_all(self, *, pick: int, page: int) -> None:
        """A complete sweep finds all lost and stale entries."""
        self.sweep_whole(one_of(self.awake(), pick), page)
        assert not self.look.lost, "whatever has left the pending list without an ack is back"

    def sweep_whole(self, name: str, page: int) -> None:
        while self.look.is_sweep_begun:
            self.sweep_a_page(name, page)
            self.all_is_where_it_should_be()
        pages = 0
        while not self.sweep_a_page(name, page):
            self.all_is_where_it_should_be()
            pages += 1
            assert pages < _ALL, "a sweep gets on with each page"
        self.all_is_where_it_should_be()

    def sweep_a_page(self, name: str, page: int) -> bool:
        before = self.look
        if not before.is_sweep_begun:
            self.missed = {*self.lost, *self.stale()}
        may_release = name in self.standing or name not in before.alive
        if not may_release:
            self.missed &= self.lost
        # The script itself, because a page of the port is longer than these queues.
        access, keys = self.members[name].consumer.access, self.keys
        names = [keys.alive, keys.standing, keys.clock, keys.maintenance]
        names += [key for lane in keys.lanes for key in (lane.stream, lane.released, lane.settled)]
        is_complete, released, restored = self.run(access.call("sweep", names, [int(LEASE * 1000), page]))

        after = self.see()
        self.forget_what_was_cleared(after)
        self.check_released(before, after, name, released, may_release=may_release)
        back = {name_of(EntryRef(stream.decode(), entry_id.decode())) for stream, entry_id in restored}
        assert back <= self.lost, "only what has left the pending list without an ack is put back"
        for entry_id in back:
            self.pending[entry_id] = Hand(self.owner_of_released(name), 0, Idle.RELEASED)
        self.lost -= back
        if is_complete:
            assert not self.missed & (self.lost | self.stale()), "what was lost or stale is found, wherever it is"
            self.missed = set()
        return bool(is_complete)

    def check_released(self, before: Look, after: Look, name: str, count: int, *, may_release: bool) -> None:
        released = {entry_id for entry_id in self.stale() if after.pending[entry_id].idle is Idle.RELEASED}
        assert len(released) == count
        assert may_release or not released, "who has a heartbeat and no standing takes nothing from anybody"
        for entry_id in released:
            count = before.pending[entry_id].count
            self.pending[entry_id] = Hand(self.owner_of_released(name), count, Idle.RELEASED)
