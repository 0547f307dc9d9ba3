"""The scripts that change dead letters and retries, alone or as the step of a job."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.scripts import load

_NAMES = {
    JobKind.REPLAY: ("replay", "dead dead_seen express stream erased"),
    JobKind.DROP: ("drop", "dead dead_seen"),
    JobKind.RUN_NOW: ("run_retries", "retry clock"),
    JobKind.DEAD_LETTER: ("dead_letter_retries", "retry retry_entries retry_announced dead clock erased"),
}


class EntryScript(NamedTuple):
    """One script for one queue.

    Attributes:
        keys: of the queue, which it needs.
        arguments: before the entries.
    """

    script: AsyncScript
    keys: Sequence[str]
    arguments: Sequence[str]


class EntryScripts:
    """The scripts for one queue.

    Args:
        client: of Redis.
        keys: of the queue.
        group: the consumer group of workers.
        within: the script that runs these, or empty.
    """

    def __init__(self, client: Redis, keys: Keys, group: str, *, within: str = "") -> None:
        self._scripts: Mapping[JobKind, AsyncScript] = {
            kind: load(client, name, within=within) for kind, (name, _) in _NAMES.items()
        }
        self._keys = keys
        self._group = group

    def of(self, kind: JobKind, actor: str) -> EntryScript:
        """Return the script of a kind of change. Retries that become dead letters name the actor as their worker."""
        arguments = {JobKind.REPLAY: [self._group], JobKind.DEAD_LETTER: [actor]}.get(kind, [])
        names = _NAMES[kind][1].split()
        return EntryScript(self._scripts[kind], [getattr(self._keys, name) for name in names], arguments)
