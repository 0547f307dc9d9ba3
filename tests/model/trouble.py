"""Faults: workers die, freeze, leave and lose their connections, and Redis is stopped, killed, full or flushed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import note
from hypothesis import strategies as st
from model.look import EXPRESS, GROUP, MAIN, lane_of, position, stream_of
from model.machine import NAMES, Machine, one_of
from model.steps import PICK, WHICH, step

from ingest.domain.errors import QueueUnavailable
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.redis.connection import QueueFull, QueueRefused

_TIDIED = ("", "trim", "remove_stale")
CLERK = ("clerk", "on", ">secret", "~*", "&*")


@dataclass(frozen=True)
class Move:
    """An entry's way from one place to another, with the commands that change something there."""

    name: str
    make: Callable[[], None]
    commands: tuple[str, ...]


class Trouble(Machine):
    """A bad day."""

    def __init__(self) -> None:
        super().__init__()
        self.was_restarted = False
        self.was_flushed = False
        self.was_group_lost = False

    # -- workers --------------------------------------------------------------------------------------------

    @step(1, lambda self: self.busy(), pick=PICK)
    def die(self, *, pick: int) -> None:
        """Its successor gets the same name."""
        name = one_of(self.busy(), pick)
        self.members[name] = self.newcomer(name)

    @step(1, lambda self: self.busy(), pick=PICK)
    def leave(self, *, pick: int) -> None:
        name = one_of(self.busy(), pick)
        for _ in range(2):  # without the group, the first call only creates it
            kept = self.run(self.members[name].consumer.leave())
            assert kept == len(self.owned_by(name)), "it says what it has not released"
        self.members[name] = self.newcomer(name)
        self.leader = None if self.leader == name else self.leader
        self.live.discard(name)
        self.standing.discard(name)

    @step(2, lambda self: self.busy() and len(self.awake()) > 1, pick=PICK)
    def freeze(self, *, pick: int) -> None:
        name = one_of(self.busy(), pick)
        self.become_stale(name)
        self.members[name].is_frozen = True

    @step(3, lambda self: len(self.awake()) < len(self.members))
    def thaw(self) -> None:
        """Workers keep their entries and continue with any step."""
        for member in self.members.values():
            member.is_frozen = False

    @step(2, lambda self: self.busy(), pick=PICK)
    def be_cut_off_from_redis(self, *, pick: int) -> None:
        self.become_stale(one_of(self.busy(), pick))

    # -- Redis ----------------------------------------------------------------------------------------------

    @step(1, lambda self: not self.was_restarted, end=st.sampled_from(("kill", "kill", "stop")), is_long=st.booleans())
    def restart(self, *, end: str, is_long: bool) -> None:
        self.was_restarted = True
        getattr(self.world.server, end)()
        with pytest.raises(QueueUnavailable):
            self.run(self.members["first"].consumer.heartbeat(1))
        self.world.server.start()
        for client in (self.world.redis, self.world.clerk):
            self.run(client.connection_pool.disconnect())
        for line in (self.world.line, self.world.clerk_line):
            self.run(line.disconnect())
        if is_long:
            for name in NAMES:
                self.become_stale(name)

    @step(1, lambda self: self.moves(), pick=PICK)
    def run_out_of_memory(self, *, pick: int) -> None:
        """A move succeeds, or is rejected without any effect."""
        move = one_of(self.moves(), pick)
        note(f"  -- {move.name} at the memory limit")
        self.run(self.world.redis.config_set("maxmemory", 1))
        try:
            with suppress(QueueFull):
                move.make()
        finally:
            self.run(self.world.redis.config_set("maxmemory", 0))

    @step(3, lambda self: self.moves(), pick=PICK, which=WHICH)
    def be_refused_half_way(self, *, pick: int, which: int) -> None:
        """A command within a move is forbidden. The entry may then be in two places, but not in none."""
        move = one_of(self.moves(), pick)
        command = one_of(move.commands, which)
        note(f"  -- {move.name} without {command}")
        is_refused = False
        with self.as_a_clerk_without(command):
            try:
                move.make()
            except QueueRefused:
                is_refused = True
        if is_refused:
            self.see_what_was_doubled()

    @contextmanager
    def as_a_clerk_without(self, command: str) -> Iterator[None]:
        """All act as a user of Redis who may not do that."""
        self.run(self.allow_all_but(command))
        consumers, letters = {name: member.consumer for name, member in self.members.items()}, self.letters
        for name, member in self.members.items():
            member.consumer = self.consumer_on(self.world.clerk, name)
        self.letters = PartitionDeadLetters(self.world.clerk, "orders")
        yield
        self.letters = letters
        for name, consumer in consumers.items():
            self.members[name].consumer = consumer

    def see_what_was_doubled(self) -> None:
        look = self.see()
        # A duplicate is allowed here by design. An error half-way leaves an announcement in the old and the new place rather
        # than in neither, and an announcement that an earlier error has doubled may be single again.
        assert (+look.tokens()).keys() >= (+self.here).keys(), "in two places rather than in none"
        for entry_id, hand in look.pending.items():
            assert replace(hand, idle=self.pending[entry_id].idle) == self.pending[entry_id]
        self.here, self.pending, self.torn = look.tokens(), look.pending, look.torn
        self.lost, self.settled, self.deleted = look.lost, look.settled, look.pending.keys() - look.stream.keys()

    async def allow_all_but(self, command: str) -> None:
        await self.world.redis.execute_command("ACL", "SETUSER", *CLERK, "+@all", f"-{command}")

    def moves(self) -> list[Move]:
        raise NotImplementedError

    @step(1, lambda self: not self.was_flushed and self.pending, pick=PICK, tidied=st.sampled_from(_TIDIED))
    def flush(self, *, pick: int, tidied: str) -> None:
        """The operator flushes Redis, and workers continue with their entries."""
        self.was_flushed = True
        for newest in self.newest.values():
            self.run(self.past(newest))
        self.run(self.world.redis.flushall())
        self.forget_all()
        if tidied:
            self.all_is_where_it_should_be()
            getattr(self, tidied)(pick=pick)

    def forget_all(self) -> None:
        """Redis is empty, and workers continue with their entries."""
        for knowledge in (self.here, self.batches, self.pending, self.live, self.standing, self.torn):
            knowledge.clear()
        for entries in (self.deleted, self.lost, self.settled, self.moved, self.erased, self.missed):
            entries.clear()
        self.leader = None
        self.newest = {EXPRESS: "0-0" + EXPRESS, MAIN: "0-0" + MAIN}
        self.producer = type(self.producer)(self.world.redis, "orders")
        self.unread, self.unacked = None, []

    async def past(self, entry_id: str) -> None:
        """Wait until an entry of a new stream cannot have that ID."""
        while position(entry_id)[0] >= (time := await self.world.redis.time())[0] * 1000 + time[1] // 1000:
            pass

    @step(
        1,
        lambda self: not self.was_group_lost and self.pending,
        pick=PICK,
        tidied=st.sampled_from(_TIDIED),
        lanes=st.sampled_from(((EXPRESS,), (MAIN,), (EXPRESS, MAIN))),
    )
    def lose_the_group(self, *, pick: int, tidied: str, lanes: tuple[str, ...]) -> None:
        """All entries of the streams are delivered again, including entries that were only kept for other groups."""
        self.was_group_lost = True
        for entry_id in self.look.finished:
            self.here[self.look.stream[entry_id]] += lane_of(entry_id) in lanes
        for lane in lanes:
            self.run(self.world.redis.xgroup_destroy(stream_of(self.keys, lane), GROUP))
        self.pending = {entry_id: hand for entry_id, hand in self.pending.items() if lane_of(entry_id) not in lanes}
        for entries in (self.deleted, self.lost, self.missed):
            entries.difference_update([entry_id for entry_id in entries if lane_of(entry_id) in lanes])
        self.gone_groups |= set(lanes)
        if tidied:
            self.all_is_where_it_should_be()
            getattr(self, tidied)(pick=pick)

    # -- maintenance ----------------------------------------------------------------------------------------

    @step(
        3, lambda self: self.settled or self.lost or not self.look.has_group, pick=PICK, most=st.sampled_from((1, 500))
    )
    def trim(self, *, pick: int, most: int = 500) -> None:
        before = self.look
        done = {each for each in before.settled if not before.is_needed_by_the_auditor_since(each)}
        # A missing group is created again from the start, so that no entry is settled any more.
        here = [each for each in done if before.last[lane_of(each)] is not None]
        deleted = set(sorted(here, key=lambda each: (lane_of(each) == MAIN, position(each)))[:most])

        assert self.run(self.members[one_of(self.awake(), pick)].consumer.trim(most)) == len(deleted)
        assert done - self.erased <= self.settled
        assert before.stream.keys() - self.see().stream.keys() == deleted & before.stream.keys(), "only what is settled"
        self.settled -= deleted

    @step(1, lambda self: self.members.keys() - self.look.alive, pick=PICK)
    def remove_stale(self, *, pick: int) -> None:
        self.run(self.members[one_of(self.awake(), pick)].consumer.remove_stale(0))
