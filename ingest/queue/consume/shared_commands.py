"""The commands that the consumers of one process share, so that an idle source costs next to nothing."""

from ingest.queue.consume.idle_reads import IdleReads
from ingest.queue.redis.combined_calls import CombinedCalls


class SharedCommands:
    """Used while there are several consumers.

    Attributes:
        calls: combines calls of scripts.
        acks: combines acks, over a connection for nothing else.
        reads: combines the reads of idle consumers.
        consumers: how many consumers there are.
    """

    def __init__(self, calls: CombinedCalls, acks: CombinedCalls, reads: IdleReads) -> None:
        self.calls = calls
        self.acks = acks
        self.reads = reads
        self.consumers = 0

    @property
    def are_used(self) -> bool:
        """Whether there are several consumers."""
        return self.consumers > 1

    async def close(self) -> None:
        """End the commands whose replies are outstanding."""
        await self.reads.close()
        await self.calls.close()
        await self.acks.close()
