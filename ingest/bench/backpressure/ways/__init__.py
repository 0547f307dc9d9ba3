"""The compared ways, each of which makes all calls and returns when they have ended."""

from importlib import import_module
from typing import Protocol, cast

from ingest.bench.backpressure.calls import Calls

WAYS = {
    "batches": "batches, one gather after the other",
    "inside": "semaphore inside the task",
    "callback": "semaphore before the task, done callback",
    "ending": "semaphore before the task, finally",
    "worker": "ours, the worker's admission",
}
"""The title of each way, by name."""

OURS = "worker"


class Way(Protocol):
    """A way of making calls."""

    async def __call__(self, calls: Calls, limit: int) -> None:
        """Make all `calls`, at most `limit` of them concurrently."""


def way(name: str) -> Way:
    """The way with this name. The worker is imported on request, so that it does not add memory to the others."""
    module = import_module(f"{__name__}.{'worker' if name == OURS else 'tasks'}")
    return cast("Way", getattr(module, "run" if name == OURS else name))
