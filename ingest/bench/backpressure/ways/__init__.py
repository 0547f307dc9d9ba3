"""The compared ways: each makes all calls, and returns when they have ended."""

from importlib import import_module
from typing import Protocol, cast

from ingest.bench.backpressure.calls import Calls

WAYS = {
    "batches": "batches: gather one, then the next",
    "inside": "semaphore inside the task",
    "callback": "semaphore before the task, done callback",
    "ending": "semaphore before the task, finally",
    "worker": "ours: the worker's admission",
}
"""What each is, by its name."""

OURS = "worker"


class Way(Protocol):
    """A way of making calls."""

    async def __call__(self, calls: Calls, limit: int) -> None:
        """Make all `calls`, at most `limit` at a time."""


def way(name: str) -> Way:
    """The way of that name. The worker is imported only where it is asked for, so that it adds no memory to the others."""
    module = import_module(f"{__name__}.{'worker' if name == OURS else 'tasks'}")
    return cast("Way", getattr(module, "run" if name == OURS else name))
