"""The responses of the routes that control workers."""

import msgspec
from msgspec import UNSET, UnsetType

from ingest.operations.control.controls import ShownLimits
from ingest.operations.control.pauses import ShownPause
from ingest.operations.json_types import Count


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
