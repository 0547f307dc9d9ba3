"""The ways compared: each module's `run` makes all calls, and returns when they have ended."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls

WAYS = {
    "batches": "batches: gather one, then the next",
    "inside": "semaphore inside the task",
    "callback": "semaphore before the task, done callback",
    "ending": "semaphore before the task, finally",
    "worker": "ours: the worker's admission",
}
"""What each is, by its module's name."""

OURS = "worker"


class Way(Protocol):
    """A way of making calls."""

    async def __call__(self, calls: Calls, limit: int) -> None:
        """Make all `calls`, at most `limit` at a time."""


def way(name: str) -> Way:
    """The way of that name; only its module is imported, so that none weighs on another."""
    return cast("Way", import_module(f"{__name__}.{name}").run)
