"""Combines work, claims, faults, foreign programs and operators, after which one worker finishes everything."""

import sys
from collections import Counter
from functools import partial

from model.claims import Claims
from model.operators import Operators
from model.trouble import Move
from model.work import Work

_HEIR = "heir"
_ALL = 1000


class QueueMachine(Work, Claims, Operators):
    """No order is lost, stored twice, or finished without being stored, whatever happens in whatever order."""

    def moves(self) -> list[Move]:
        """Those that can be made now."""
        reschedule = partial(self.reschedule, pick=0, which=0, later=0.0, lost=False)
        possible = (
            (
                self.look.due,
                Move("move_due", partial(self.move_due, pick=0, most=2, much_later=False), ("xadd", "hdel", "zrem")),
            ),
            (self.look.dead, Move("replay", partial(self.replay, pick=0, lost=False), ("xadd", "xdel"))),
            (self.undecided(), Move("reschedule", reschedule, ("hset", "zadd", "xack", "xdel", "xclaim", "set"))),
            (
                self.undecided(),
                Move(
                    "dead_letter",
                    partial(self.dead_letter, pick=0, which=0, lost=False),
                    ("xadd", "xack", "xdel", "xclaim", "zadd", "set"),
                ),
            ),
        )
        return [move for condition, move in possible if condition]

    def teardown(self) -> None:
        if sys.exc_info()[0] is None:
            self.everything_can_still_be_finished()

    def everything_can_still_be_finished(self) -> None:
        """A new worker keeps its heartbeat after all other heartbeats have ended."""
        for name in self.members:
            self.become_stale(name)
        self.members = {_HEIR: self.newcomer(_HEIR)}
        for step in (self.get_going, self.bring_back, self.inherit, self.take_in, self.settle, self.clean_up):
            step()
            self.all_is_where_it_should_be()
        assert not self.look.stream
        assert not self.look.pending
        assert not self.look.settled
        assert self.here == Counter(self.look.dead.values()), "all is stored or dead-lettered"

    def get_going(self) -> None:
        self.renew_heartbeat(pick=0, lost=False)
        assert self.leader == _HEIR
        self.mature(_HEIR)
        self.run(self.members[_HEIR].consumer.ensure_group())

    def bring_back(self) -> None:
        self.sweep_whole(_HEIR, _ALL)
        assert not self.lost
        if self.look.retry:
            self.move_due(pick=0, most=_ALL, much_later=True)

    def inherit(self) -> None:
        self.claim_abandoned(pick=0, count=_ALL, lost=False)

    def take_in(self) -> None:
        if self.look.undelivered:
            self.read(pick=0, count=_ALL, lost=False)

    def settle(self) -> None:
        heir = self.members[_HEIR]
        for delivery in [delivery for delivery in heir.undecided() if delivery.order_id is None]:
            self.settle_as_dead(_HEIR, delivery)
            self.after_move(_HEIR, delivery, lost=False)
        if heir.storable():
            self.commit(pick=0, which=0, most=_ALL, lost=False)
            self.ack(pick=0, lost=False)

    def clean_up(self) -> None:
        if self.unread is not None:
            self.auditor_goes()
            self.unacked = []
            self.all_is_where_it_should_be()
        self.trim(pick=0)
