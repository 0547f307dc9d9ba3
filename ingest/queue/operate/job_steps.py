"""The steps of one job on the entries of one queue.

A step changes some entries and records that, in one script: both or neither. If the process dies here, the next one continues after the last
step that has run, so no entry is changed or counted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.failed.entry_scripts import EntryScripts
from ingest.queue.operate.repeated_calls import RepeatedCalls
from ingest.queue.redis.connection import translated
from ingest.queue.redis.scripts import load

MOST_IN_STEP = 50
"""Entries of one step. With usual entries, it takes Redis a millisecond or two."""

# A job that is resumed later begins with the position in PostgreSQL, which is a second older.
_KEPT_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class StepRecord:
    """How far a job has come in one queue.

    Attributes:
        after: the position of the last entry of the last step.
        done: entries that were changed.
        gone: entries that another operator or a worker had moved before.
    """

    after: str = ""
    done: int = 0
    gone: int = 0


class JobSteps:
    """Runs steps. All methods wait while Redis is unavailable or full, and call `on_wait` with each reason."""

    def __init__(
        self,
        client: Redis,
        queue: str,
        job: int,
        *,
        group: str = DEFAULT_GROUP,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self._record = f"{self._keys.records}job:{job}"
        self._call = RepeatedCalls(on_wait).call
        self._keep = load(client, "keep_job_record")
        self._scripts = EntryScripts(client, self._keys, group, within="job_step")

    async def begin(self, known: StepRecord) -> StepRecord:
        """Return the record of the steps so far. Without one in Redis, it becomes the known one."""
        found: StepRecord = await self._call(self._begin, known)
        return found

    async def change(self, kind: JobKind, entries: Sequence[Any], after: str, actor: str = "") -> StepRecord:
        """Change entries, which are IDs of dead letters or names of retries. Retries that become dead letters name the actor."""
        script, keys, arguments = self._scripts.of(kind, actor)
        step = [after, len(entries), _KEPT_SECONDS, *arguments, *entries]
        done, gone = await self._call(_call, script, [self._record, *keys], step)
        return StepRecord(after, int(done), int(gone))

    async def forget(self) -> None:
        """Let the record of a job that has ended expire."""
        await self._call(self._forget)

    async def _begin(self, known: StepRecord) -> StepRecord:
        with translated():
            text = f"{known.done} {known.gone} {known.after}"
            # Another process that holds the lease no more may still run the job.
            if await self._keep([self._record], [text, _KEPT_SECONDS, "NX"]):
                return known
            found: Any = await self._client.get(self._record)
            done, gone, after = found.decode().split(" ", 2)
            return StepRecord(after, int(done), int(gone))

    async def _forget(self) -> None:
        with translated():
            # Not deleted, because users of Redis with the least privileges may only set records.
            await self._keep([self._record], ["0 0 ", 1])


async def _call(script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
    with translated():
        return await script(keys, arguments)
