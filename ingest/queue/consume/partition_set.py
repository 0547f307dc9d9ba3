"""The partitions that one process reads, which change while it runs, and the calls to them, each of which fails or is slow alone.

Only this process uses the set. If the process dies, nothing of it is lost, because its successor reads the same record of partitions.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.group_access import Item, by_stream
from ingest.queue.consume.partition import Kind, Partition, log_end, unless_known
from ingest.queue.redis.combined_calls import end

_T = TypeVar("_T")
# Seconds for which a call waits for slow servers while others have responded.
WAIT = 1.0


class PartitionSet:
    """The partitions of one queue.

    Attributes:
        all: the partitions that are read, partition 0 first.
        consumers: how many processes read them.
        generation: of the layout with these partitions.
        changed: set when a heartbeat in the only partition reports another generation.
        have_one_owner: whether one command may name the streams of all partitions. The argument decides it for some keys.
        server_of: the server of a key, as far as it is known. Calls to one server may share a command.
    """

    def __init__(self, have_one_owner: Callable[[Iterable[str]], bool], server_of: Callable[[str], str]) -> None:
        self._have_one_owner = have_one_owner
        self.server_of = server_of
        self.have_one_owner = True
        self.all: tuple[Partition, ...] = ()
        # By queue, partitions that could not be opened.
        self._unopened: dict[str, PartitionTrouble] = {}
        self._by_stream: dict[str, Partition] = {}
        self._running: dict[tuple[Kind, Partition], asyncio.Task[Any]] = {}
        self._outbox: defaultdict[tuple[Kind, Partition], list[Any]] = defaultdict(list)
        self.consumers = 1
        self.generation = 0
        self.changed = asyncio.Event()

    @property
    def only(self) -> Partition | None:
        """The only partition, or None if the queue has several."""
        return self.all[0] if len(self.all) == 1 and not self._unopened else None

    @property
    def troubles(self) -> list[PartitionTrouble]:
        """The troubles of some of several servers, shown to operators."""
        of_read = [] if self.have_one_owner else [each.trouble for each in self.all]
        return [*self._unopened.values(), *(each for each in of_read if each is not None)]

    def ready(self, kind: Kind) -> tuple[Partition, ...]:
        """Return the partitions to which calls of a kind may be made now. If there are none, all, because the whole queue waits then.

        Calls that fail are tried again after a pause that grows.
        """
        if self.have_one_owner:
            return self.all  # one server has all partitions or none, and the caller waits
        now = asyncio.get_running_loop().time()
        found = tuple(each for each in self.all if each.is_ready(kind, now))
        return found or self.all

    def rotated(self, kind: Kind) -> tuple[Partition, ...]:
        """Return the partitions that are `ready`, beginning with a random one, so that none is always the last."""
        ready = self.ready(kind)
        first = random.randrange(len(ready))  # noqa: S311  no secret
        return ready[first:] + ready[:first]

    async def each(
        self,
        kind: Kind,
        call: Callable[[Partition], Awaitable[_T]],
        partitions: Iterable[Partition] | None = None,
        wait: float = WAIT,
    ) -> dict[Partition, _T]:
        """Make a call to each of these partitions, or each that is `ready`, and return the results that are there after `wait` seconds.

        A call that takes longer continues, and the next call of this method returns its result instead of making another one.

        Raises:
            QueueUnavailable: calls have failed, and none has succeeded.
        """
        partitions = self.ready(kind) if partitions is None else partitions
        if self.only is not None:
            return {partition: await call(partition) for partition in partitions}
        running = {}
        for partition in partitions:
            if (task := self._running.get((kind, partition))) is None:
                task = self._running[kind, partition] = asyncio.create_task(self._outcome(kind, partition, call))
            running[partition] = task
        if not running:
            return {}
        await asyncio.wait(running.values(), timeout=wait)
        found: dict[Partition, _T] = {}
        errors = []
        for partition, task in running.items():
            if not task.done():
                continue
            self._running.pop((kind, partition), None)
            result = task.result()
            if isinstance(result, QueueUnavailable):
                errors.append(result)
            else:
                found[partition] = result
        if errors and not found:
            raise errors[0]
        return found

    async def send(
        self,
        kind: Kind,
        items: Iterable[Item],
        call: Callable[[Partition, list[Item]], Awaitable[_T]],
        wait: float = WAIT,
    ) -> list[_T]:
        """Send entries or their deliveries to the partitions of their streams, and return the replies that are there after `wait` seconds.

        Items of partitions to which such calls fail are left out while others succeed, so that these do not wait. It raises as `each` does.
        """
        wanted: dict[Partition, None] = {}
        left_out: dict[Partition, None] = {}
        ready = {*self.ready(kind)}
        for stream, own in by_stream(items).items():
            partition = self._by_stream[stream]
            if partition in ready or partition not in self.all:
                self._outbox[kind, partition] += own
                wanted[partition] = None
            else:
                left_out[partition] = None
        sent = tuple(wanted)

        async def send_waiting(partition: Partition) -> list[_T]:
            replies = []
            while own := self._outbox.pop((kind, partition), []):
                replies.append(await call(partition, own))
            return replies

        found: list[_T] = []
        while wanted:
            for replies in (await self.each(kind, send_waiting, wanted, wait)).values():
                found += replies
            # A call that had ended before this one was found instead of being made.
            left = {key for key in self._outbox if key not in self._running}
            wanted = dict.fromkeys(partition for partition in wanted if (kind, partition) in left)
        failed = (each for each in sent if kind in each.troubles and (kind, each) not in self._running)
        for partition in (*left_out, *failed):
            # Only now does the caller drop these items, and a claim leaves out items that are held.
            partition.may_own_more = True
        return found

    async def attempt(
        self, kind: Kind, partition: Partition, call: Callable[..., Awaitable[_T]], *arguments: Any
    ) -> _T:
        """Return the result of a call. If it fails, calls of its kind leave the partition out for a while."""
        clock = asyncio.get_running_loop().time
        began_at = clock()
        try:
            result = await call(*arguments)
        except QueueUnavailable as error:
            partition.may_own_more = True
            if not self.have_one_owner:
                partition.failed(kind, error, self.server_of)
            raise
        if not self.have_one_owner:
            partition.succeeded(kind, clock() - began_at, self.server_of)
        return result

    def replace(
        self, partitions: Sequence[Partition], generation: int, unopened: Mapping[str, QueueUnavailable]
    ) -> None:
        """Read the partitions of a layout from now on. Entries of the others are still settled.

        Args:
            partitions: those that could be opened.
            generation: of the layout.
            unopened: the errors of the others, by the name of their queue.
        """
        self.all, self.generation = tuple(partitions), generation
        streams = {stream: each for each in partitions for stream in each.reading.streams}
        self._by_stream |= streams
        self.have_one_owner = self._have_one_owner(streams)
        before, self._unopened = self._unopened, {}
        for queue, error in unopened.items():
            self._unopened[queue] = unless_known(before.pop(queue, None), queue, self.server_of, error)
        for trouble in before.values():
            log_end(trouble)

    def of(self, stream: str) -> Partition:
        """Return the partition to which a stream belongs."""
        return self._by_stream[stream]

    async def close(self) -> None:
        """End the calls whose replies are outstanding."""
        await end(self._running.values())

    async def _outcome(
        self, kind: Kind, partition: Partition, call: Callable[[Partition], Awaitable[_T]]
    ) -> _T | QueueUnavailable:
        try:
            return await self.attempt(kind, partition, call, partition)
        except QueueUnavailable as error:
            return error
