"""Finds the worker processes that use another version of a file than this process finds.

Orders that are fetched again by such a worker are stored by its version, for example by a mapping that was corrected since.
"""

import asyncio
from collections.abc import Iterable, Mapping

from ingest.domain.errors import WorkersDiffer
from ingest.domain.operating.source_state import Reason, State
from ingest.operations.backends import Backends
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.partition_monitor import ConsumerState
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.redis.connection import control_client

_HOW = (
    "they use it after they log `sources_reloaded`, or after a restart. A change of Python code always needs a restart"
)


def differences(consumers: Iterable[ConsumerState], wanted: Mapping[str, str]) -> list[Reason]:
    """Return a reason for each file of which live workers use another version. Those of former releases report none."""
    alive = [each.versions for each in consumers if each.state == "alive"]
    found = []
    for file, version in wanted.items():
        if others := sum(used.get(file, version) != version for used in alive):
            workers = "1 worker uses" if others == 1 else f"{others} workers use"
            found.append(Reason(State.RUNNING, f"{workers} another version of {file}"))
    return found


async def require_same_version(backends: Backends) -> None:
    """Require that all live workers of a source use the versions that this process finds.

    Raises:
        WorkersDiffer: some do not.
        QueueUnavailable: Redis cannot be used right now.
    """
    wanted = await asyncio.to_thread(backends.versions)
    async with control_client(backends.redis_url) as client:
        layout = LayoutRecord(client, backends.stream, backends.partitions).recent
        consumers = await Monitor(client, layout, backends.group).consumers()
    if found := differences(consumers, wanted):
        raise WorkersDiffer(f"{', '.join(each.text for each in found)}: {_HOW}")
