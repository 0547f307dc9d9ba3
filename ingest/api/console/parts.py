"""The parts of a process that the pages of the console use."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.api.console.frame import Frame, Page
from ingest.api.console.live import LiveData
from ingest.api.operations.job_routes import LooksForJobs
from ingest.api.source_connections import SourceConnections
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.failed_orders.entry_counts import EntryCounts
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.operations.jobs.orders import OpenDecoder
from ingest.operations.state.history import History
from ingest.operations.state.snapshots import Snapshots
from ingest.settings import Settings


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """These parts.

    Attributes:
        settings: The settings of the process.
        settings_of: The settings of each source.
        sources: The connections of each source.
        snapshots: The state of all sources.
        history: The last hours of all sources.
        access: The access to the controls, and to the database.
        groups: The groups of all dead letters and retries.
        counts: The counts of selected dead letters and retries.
        decoders: Open the mapping and the transform of each source, by its name.
        runs: Runs the jobs that are requested here.
    """

    settings: Settings
    settings_of: Mapping[str, Settings]
    sources: Mapping[str, SourceConnections]
    snapshots: Snapshots
    history: History
    access: ControlAccess
    groups: GroupSurveys
    counts: EntryCounts
    decoders: Mapping[str, OpenDecoder]
    runs: LooksForJobs


class Pages(ABC):
    """The pages about one subject.

    Args:
        frame: Renders them.
        live: Sends their live parts.
        parts: The parts that they use.
    """

    def __init__(self, frame: Frame, live: LiveData, parts: ConsoleParts) -> None:
        self._frame = frame
        self._live = live
        self._parts = parts
        self._access = parts.access
        self._sources = parts.sources

    @abstractmethod
    def pages(self) -> Sequence[Page]:
        """Return the pages."""
