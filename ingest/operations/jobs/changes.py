"""The changes that a job makes, which `run` makes step by step."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection
from typing import ClassVar

from ingest.domain.operating.jobs import JobProgress
from ingest.domain.orders.field_differences import ChangePreview


class Changes(ABC):
    """The changes of one job, from its recorded position."""

    __slots__ = ()

    is_recorded_at_once: ClassVar[bool] = False
    """Whether each new position is recorded before the next step, because a repeated step is expensive. Others are once a second."""

    @abstractmethod
    def changes(self) -> AsyncGenerator[JobProgress, None]:
        """Make the changes, and yield the progress after each step.

        Raises:
            UserError: the job cannot be finished, and fails.
            LeaseLost: the job was cancelled, or another process has taken it.
            Unavailable: a server is unavailable, and the job is run again later.
        """

    async def forget(self) -> None:
        """Delete what only an unfinished job needs, after its end is recorded."""
        return

    def result(self) -> tuple[ChangePreview | None, Collection[str]]:
        """Return the result of all changes, and the orders that it contains."""
        return None, ()

    def unproven(self) -> str:
        """Return what the changes could not prove. Empty if they have proven everything."""
        return ""
