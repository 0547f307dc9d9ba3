"""The bodies of requests and responses about controls of workers."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from ingest.domain.operating.controls import LogLevel
from ingest.operations.control.controls import ShownLimits
from ingest.operations.control.pauses import PauseRequest, ShownPause
from ingest.operations.json_types import Count

_Seconds = Annotated[float, msgspec.Meta(ge=1, le=31_536_000, description="After which the source is resumed.")]
_Reason = Annotated[str, msgspec.Meta(max_length=200)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class PauseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pause of a source.

    Attributes:
        seconds: The time after which it ends by itself. None means until the source is resumed.
        reason: The reason, for other operators.
        reject_orders: Whether producers are rejected.
        hold_polls: Whether the list of the shop is not read either.
        dry_run: Whether to only count the orders that would wait.
    """

    seconds: _Seconds | None = None
    reason: _Reason = ""
    reject_orders: bool = False
    hold_polls: bool = False
    dry_run: bool = False

    def request(self) -> PauseRequest:
        """The pause.

        Raises:
            InvalidControl: The reason cannot be shown.
        """
        return PauseRequest(self.seconds, self.reason, self.reject_orders, self.hold_polls)


class ResumeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a pause.

    Attributes:
        dry_run: Whether to only count the orders that would be processed.
    """

    dry_run: bool = False


class TuneBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changed limits of a running source.

    Attributes:
        concurrency: Orders in flight in each process.
        rate: Requests per second over all processes.
        reset: Whether to return to the configured limits, instead of changing them.
        dry_run: Whether to only check the limits.
    """

    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None
    reset: bool = False
    dry_run: bool = False


class DrainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Worker processes that begin no orders.

    Attributes:
        target: A host, an `ingest worker` or a process.
        reason: The reason, for other operators.
        undo: Whether to let them begin orders again.
        dry_run: Whether to only list the processes.
    """

    target: _Name
    reason: _Reason = ""
    undo: bool = False
    dry_run: bool = False


class LogLevelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log level of running workers.

    Attributes:
        level: None for the configured one.
        host: Whose workers. Empty for all hosts.
    """

    level: LogLevel | None
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""


class ShownControls(msgspec.Struct, frozen=True):
    """The controls of a source. The pause is null if it is not paused, and the limits if the configured ones apply."""

    source: str
    pause: ShownPause | None
    limits: ShownLimits | None


class PauseResult(msgspec.Struct, frozen=True):
    """The pause of a source. A dry run counts the orders that would wait."""

    dry_run: bool
    source: str
    pause: ShownPause | None
    waiting: Count | UnsetType = UNSET
    pending: Count | UnsetType = UNSET


class ResumeResult(msgspec.Struct, frozen=True):
    """Whether a source was paused. A dry run counts the orders that wait."""

    dry_run: bool
    source: str
    resumed: bool | UnsetType = UNSET
    pause: ShownPause | UnsetType | None = UNSET
    waiting: Count | UnsetType = UNSET
    pending: Count | UnsetType = UNSET


class TuneResult(msgspec.Struct, frozen=True):
    """The changed limits of a source, or null if the configured ones apply."""

    dry_run: bool
    source: str
    limits: ShownLimits | None


class DrainResult(msgspec.Struct, frozen=True):
    """The names of the processes."""

    dry_run: bool
    target: str
    workers: list[str]
