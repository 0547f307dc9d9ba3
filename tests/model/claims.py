"""How entries change hands: by heartbeats and renewals, and by taking over from the dead and the silent."""

from model.look import LEASE, Hand
from model.machine import LIFETIME, Machine, one_of
from model.steps import LOST, PICK, SOME, step

_ALL = 1000


class Claims(Machine):
    """Who may take what from whom."""

    @step(3, lambda self: set(self.awake()) - self.beating, pick=PICK, lost=LOST)
    def beat(self, *, pick: int, lost: bool) -> None:
        name = one_of(sorted(set(self.awake()) - self.beating), pick)
        consumer = self.members[name].consumer

        assert self.run(consumer.beat(LIFETIME)).is_first, "it learns that others may have taken it for dead"
        assert not lost or not self.run(consumer.beat(LIFETIME)).is_first
        self.beating.add(name)

    @step(3, lambda self: self.beating - self.standing, pick=PICK)
    def keep_beating_for_a_lifetime(self, *, pick: int) -> None:
        name = one_of(sorted(self.beating - self.standing), pick)

        assert not self.run(self.members[name].consumer.beat(LIFETIME)).is_first, "nobody has taken it for dead"
        self.mature(name)

    @step(3, lambda self: self.holders(), pick=PICK, lost=LOST)
    def renew(self, *, pick: int, lost: bool) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        others = self.pending.keys() - self.owned_by(name) - self.given_back()
        gone = self.run(member.consumer.renew(list(member.held)))

        assert gone == member.held.keys() & others, "it learns exactly what others have"
        for entry_id in member.held.keys() & self.owned_by(name):
            self.pending[entry_id] = Hand(name, self.pending[entry_id].count)
        if not lost:
            for entry_id in gone:
                member.drop(entry_id)

    @step(3, lambda self: self.successors(), pick=PICK, count=SOME, lost=LOST)
    def claim_own(self, *, pick: int, count: int, lost: bool) -> None:
        name = one_of(self.successors(), pick)
        member = self.members[name]
        left = [entry_id for entry_id in self.look.held_by(name) if entry_id not in member.held]
        taken = self.run(member.consumer.claim_own(count, list(member.held)))

        assert [delivery.entry_id for delivery in taken] == left[:count]
        self.hand_over(name, taken, lost=lost)

    @step(4, lambda self: self.look.alive - self.beating, pick=PICK, count=SOME, lost=LOST)
    def claim_dead(self, *, pick: int, count: int, lost: bool) -> None:
        self.take_over(one_of(self.awake(), pick), count, lost=lost)

    @step(5, lambda self: self.standing and self.holders(), pick=PICK, heir=PICK)
    def be_taken_for_dead(self, *, pick: int, heir: int) -> None:
        """Its heartbeat ends and another takes over; it goes on and believes to hold what the other has."""
        self.silence(one_of(self.holders(), pick))
        self.all_is_where_it_should_be()
        heirs = [name for name in self.awake() if name in self.standing]
        if heirs:
            self.take_over(one_of(heirs, heir), _ALL, lost=False)

    def take_over(self, name: str, count: int, *, lost: bool) -> None:
        dead = self.look.alive - self.beating if name in self.standing else set()
        left = [entry_id for entry_id, hand in self.pending.items() if hand.owner in dead]
        taken = self.run(self.members[name].consumer.claim_dead(count))

        assert {delivery.entry_id for delivery in taken} <= set(left), "of the dead, by who has standing"
        assert len(taken) == min(count, len(left))
        self.hand_over(name, taken, lost=lost)

    @step(3, lambda self: self.abandoned(), pick=PICK, count=SOME, lost=LOST)
    def claim_idle(self, *, pick: int, count: int, lost: bool) -> None:
        name = one_of(self.awake(), pick)
        member = self.members[name]
        may_judge = name in self.standing or name not in self.look.alive
        left = self.abandoned() if may_judge else self.given_back()
        was_sweeping = member.is_sweeping
        taken, is_complete = self.run(member.consumer.claim_idle(count, LEASE))

        assert {delivery.entry_id for delivery in taken} <= left, "what is silent, by who may judge, or was given back"
        assert len(taken) <= count
        assert was_sweeping or not is_complete or len(taken) in {count, len(left)}, "a sweep sees all"
        member.is_sweeping = not is_complete
        self.hand_over(name, taken, lost=lost)
