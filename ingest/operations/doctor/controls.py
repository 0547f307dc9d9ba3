"""Checks whether operators have drained processes or changed limits, and may have forgotten it. `states` reports paused sources."""

from collections.abc import Collection, Iterator

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.controls import Controls
from ingest.operations.backends import Backends
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.redis.connection import control_client

_OF = Checks(Area.REDIS)


async def read_controls(backends: Backends) -> Controls:
    """Return the controls. Raises `QueueUnavailable`."""
    async with control_client(backends.redis_url) as client:
        return await ControlRecord(client, backends.deployment, backends.group).read()


def findings(found: Controls | QueueUnavailable, sources: Collection[str]) -> Iterator[Finding]:
    """Report the changed limits of these sources, and all drains."""
    if isinstance(found, QueueUnavailable):
        return  # reported by the check of Redis
    for source in sources:
        option = f" --source {source}" if source else ""
        if (tuning := found.tunings.get(source)) is not None:
            yield _OF.warning(
                f"the limits of {_named(source)} were changed by {tuning.by} at {tuning.since:%Y-%m-%d %H:%M} UTC",
                f"configure the limits, then run `ingest tune{option} --reset`",
            )
    for target, drain in found.drains.items():
        yield _OF.warning(
            f"{target} was drained by {drain.by} at {drain.since:%Y-%m-%d %H:%M} UTC",
            f"run `ingest drain {target} --undo` when its processes may begin orders again",
        )


def _named(source: str) -> str:
    return f"the source {source}" if source else "the source"
