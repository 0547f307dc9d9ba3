"""The state of all sources at one moment, with rates and limits, for the console and `ingest top`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.domain.operating.condition import UNREAD, Condition
from ingest.domain.operating.controls import NO_CONTROLS, Controls, Pause, Tuning
from ingest.domain.operating.service_report import Webhooks
from ingest.domain.operating.source_state import State
from ingest.operations.state.flow_rates import NO_RATES, Rates
from ingest.operations.state.notices import Notice, notices_of
from ingest.queue.operate.partition_monitor import ConsumerState
from ingest.queue.operate.server_memory import ServerMemory


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """One source.

    Attributes:
        source: the name of the source, empty for the unnamed one.
        condition: its state with the reasons.
        queue: the state of its queue, or None while a partition cannot be read.
        consumers: worker processes, by name, with those whose heartbeat has expired.
        rates: orders per second and latency over the last seconds.
        pause: by an operator, or None.
        tuning: limits that an operator has changed, or None.
        gone: worker processes that this process has seen in the last ten minutes, and that have ended or no longer respond.
        partitions: the state of each partition that can be read, by the name of its queue. Empty with a single partition.
        webhooks: that the HTTP API has received, or None if there were none.
    """

    source: str
    condition: Condition = UNREAD
    queue: QueueState | None = None
    consumers: Sequence[ConsumerState] = ()
    rates: Rates = NO_RATES
    pause: Pause | None = None
    tuning: Tuning | None = None
    gone: Sequence[ConsumerState] = ()
    partitions: Mapping[str, QueueState] = field(default_factory=dict)
    webhooks: Webhooks | None = None

    @property
    def state(self) -> State:
        """The state of the source."""
        return self.condition.state

    @property
    def trouble(self) -> tuple[int, int, str]:
        """Sorts sources by their state, the most serious first, and then by their waiting orders."""
        waiting = 0 if self.queue is None else self.queue.depth or 0
        return -[*State].index(self.state), -waiting, self.source

    @property
    def workers(self) -> int:
        """The number of worker processes with a heartbeat."""
        return sum(consumer.state == "alive" for consumer in self.consumers)


@dataclass(frozen=True, slots=True)
class Servers:
    """Redis and PostgreSQL.

    Attributes:
        problem: why Redis cannot be read, or empty.
        memory: of Redis, or None if it is unknown.
    """

    problem: str = ""
    memory: ServerMemory | None = None


NO_PROBLEMS = Servers()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All sources.

    Attributes:
        at: time of reading.
        sources: by name.
        queue: the sum of all queues, or None while one of them cannot be read.
        rates: of all sources together.
        controls: what operators have changed while workers run.
        servers: the problems of Redis and PostgreSQL.
    """

    at: datetime
    sources: Sequence[SourceSnapshot]
    queue: QueueState | None = None
    rates: Rates = NO_RATES
    controls: Controls = NO_CONTROLS
    servers: Servers = NO_PROBLEMS

    @property
    def notices(self) -> Sequence[Notice]:
        """One notice for each cause, the most serious first."""
        return notices_of({each.source: each.condition for each in self.sources})

    @property
    def trouble_first(self) -> Sequence[SourceSnapshot]:
        """The sources, those in trouble first."""
        return sorted(self.sources, key=lambda each: each.trouble)

    def waiting_for(self, notice: Notice) -> int | None:
        """Return how many orders the sources of a notice have in their queues, or None if that is unknown."""
        concerned = [each.queue for each in self.sources if not notice.sources or each.source in notice.sources]
        counts = [None if queue is None else queue.in_queue for queue in concerned]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def problem(self) -> str:
        """Why Redis cannot be read, or empty."""
        return self.servers.problem

    def limited_to(self, is_permitted: Callable[[str], bool]) -> "Snapshot":
        """Return the snapshot with some of the sources only, for a viewer who may not see the others."""
        if all(is_permitted(each.source) for each in self.sources):
            return self
        sources = [each for each in self.sources if is_permitted(each.source)]
        return snapshot_of(self.at, sources, self.controls, self.servers)

    def source(self, name: str) -> SourceSnapshot | None:
        """Return the source with this name."""
        return next((each for each in self.sources if each.source == name), None)

    @property
    def workers(self) -> int:
        """The number of worker processes with a heartbeat, which each run several sources."""
        return len({each.name for source in self.sources for each in source.consumers if each.state == "alive"})


def snapshot_of(
    at: datetime, sources: Sequence[SourceSnapshot], controls: Controls, servers: Servers = NO_PROBLEMS
) -> Snapshot:
    """Make a snapshot of its sources."""
    queues = [each.queue for each in sources if each.queue is not None]
    total = total_of(queues) if queues and len(queues) == len(sources) else None
    return Snapshot(at, sources, total, Rates.total(each.rates for each in sources), controls, servers)
