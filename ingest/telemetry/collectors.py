"""prometheus_client collectors for the shared-memory metrics and the queue, used by the process that serves /metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from platform import python_version
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ingest.domain.deliveries.queue_state import LaneState, QueueState
from ingest.domain.operating.source_state import Reason
from ingest.domain.source_name import UNNAMED
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

_TOTALS: dict[str, tuple[str, Callable[[QueueState], float | None]]] = {
    "ingest_queue_depth": ("Entries not yet delivered to a worker, in both lanes.", lambda state: state.depth),
    "ingest_queue_pending": ("Entries delivered and not yet acked, in both lanes.", lambda state: state.pending),
    "ingest_queue_oldest_age_seconds": (
        "Time since the oldest unfinished order was first announced, the retry set included.",
        lambda state: state.oldest_age or 0.0,
    ),
    "ingest_queue_consumers": ("Consumers of the group.", lambda state: state.consumers),
    "ingest_retries_scheduled": ("Entries waiting in the retry set.", lambda state: state.retries),
    "ingest_retries_due": ("Entries of the retry set whose time has come.", lambda state: state.retries_due),
    "ingest_dead_letters": ("Entries in the dead-letter stream.", lambda state: state.dead),
}
_OF_LANES: dict[str, tuple[str, Callable[[LaneState], float | None]]] = {
    "ingest_queue_lane_depth": ("Entries of one lane not yet delivered to a worker.", lambda lane: lane.depth),
    "ingest_queue_lane_pending": ("Entries of one lane delivered and not yet acked.", lambda lane: lane.pending),
    "ingest_queue_lane_oldest_age_seconds": (
        "Time since the oldest order in one lane was first announced.",
        lambda lane: lane.oldest_age or 0.0,
    ),
    "ingest_queue_lane_ids_ahead_seconds": (
        "Time by which the last entry ID of one lane is ahead of Redis' clock.",
        lambda lane: lane.ids_ahead,
    ),
}
_OF_PARTITIONS: dict[str, tuple[str, Callable[[QueueState], float | None]]] = {
    "ingest_partition_depth": ("Entries of one partition not yet delivered to a worker.", lambda state: state.depth),
    "ingest_partition_oldest_age_seconds": (
        "Time since the oldest unfinished order of one partition was first announced, the retry set included.",
        lambda state: state.oldest_age or 0.0,
    ),
}
_PAUSED = "1 while an operator has paused the source."
_STATE = "When a reason for a state of the source began, in Unix seconds (0: unknown). No sample without the reason."
_TROUBLE = "1 while the server of a partition is slow, denied, resharding or unavailable."
_OWNER = "The server that owns the keys of a partition. Always 1."


class SharedMetricsCollector(Collector):
    """Exports the shared-memory metrics, over all processes."""

    def __init__(self, shared_metrics: SharedMetrics) -> None:
        self._shared_metrics = shared_metrics

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family for each declared metric."""
        sources = self._shared_metrics.sources()
        for spec in self._shared_metrics.specs:
            family = _family(spec)
            for source in sources if spec.by_source else [UNNAMED]:
                self._add(family, spec, source)
            yield family

    def _add(
        self, family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily, spec: Spec, source: str
    ) -> None:
        names = spec.label.count(",") + 1
        for index, value in enumerate(spec.values):
            cells = self._shared_metrics.total(spec, index, source)
            if spec.appears_later and not any(cells):
                # Most buckets and reasons of most sources count nothing, and they are most of the page.
                continue
            labels = [*([source] if spec.by_source else []), *(value.split(",", names - 1) if spec.label else [])]
            if isinstance(family, HistogramMetricFamily):
                family.add_metric(labels, buckets=_cumulate(spec.bounds, cells), sum_value=cells[-1])
            else:
                family.add_metric(labels, cells[0])


class ObservedQueue(NamedTuple):
    """The state of one source's queue.

    Attributes:
        stream: the name of the queue.
        state: None if a partition cannot be read.
        partitions: the state of each partition by its number, empty for the queue with the plain name. Without a value for a
            queue that has always had a single partition.
        owners: the address of the server of each partition, in the same way.
        troubles: of partitions, by the number of the partition and the kind, each with the address of its server.
        is_paused: whether an operator has paused the source. None if that is unknown.
        reasons: for the state of the source, see `ingest.operations.state.condition`.
    """

    source: str
    stream: str
    state: QueueState | None
    partitions: Mapping[str, QueueState] = MappingProxyType({})
    owners: Mapping[str, str] = MappingProxyType({})
    is_paused: bool | None = None
    troubles: Mapping[tuple[str, str], str] = MappingProxyType({})
    reasons: Sequence[Reason] = ()


class QueueCollector(Collector):
    """Exports the states of queues and their partitions. Every worker exports the same groups, so dashboards take the maximum over workers."""

    def __init__(self, queues: Sequence[ObservedQueue]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges of the groups, their lanes and partitions, without samples for unknown values."""
        known = [(queue, queue.state) for queue in self._queues if queue.state is not None]
        for name, (text, value_of) in _TOTALS.items():
            totals = (((queue.source, queue.stream), value_of(state)) for queue, state in known)
            yield _gauges(name, text, ["source", "stream"], totals)
        for name, (text, value_in) in _OF_LANES.items():
            lanes = (
                ((queue.source, queue.stream, lane.value), value_in(part))
                for queue, state in known
                for lane, part in state.lanes.items()
            )
            yield _gauges(name, text, ["source", "stream", "lane"], lanes)
        for name, (text, value_of) in _OF_PARTITIONS.items():
            partitions = (
                ((queue.source, partition), value_of(state))
                for queue in self._queues
                for partition, state in queue.partitions.items()
            )
            yield from _if_any(_gauges(name, text, ["source", "partition"], partitions))
        pauses = (((queue.source,), queue.is_paused) for queue in self._queues)
        yield from _if_any(_gauges("ingest_paused", _PAUSED, ["source"], pauses))
        states = (
            ((queue.source, reason.state.value, reason.server), reason.since or 0.0)
            for queue in self._queues
            for reason in queue.reasons
        )
        yield from _if_any(
            _gauges("ingest_source_state_since_seconds", _STATE, ["source", "state", "server"], dict(states).items())
        )
        owners = (
            ((queue.source, partition, node), 1.0) for queue in self._queues for partition, node in queue.owners.items()
        )
        troubles = (
            ((queue.source, partition, node, kind), 1.0)
            for queue in self._queues
            for (partition, kind), node in queue.troubles.items()
        )
        yield from _if_any(
            _gauges("ingest_partition_trouble", _TROUBLE, ["source", "partition", "node", "kind"], troubles)
        )
        yield from _if_any(_gauges("ingest_partition_owner", _OWNER, ["source", "partition", "node"], owners))


def _gauges(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float | None]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family


def _if_any(family: Metric) -> Iterator[Metric]:
    """The family, unless no queue has several partitions."""
    if family.samples:
        yield family


class BuildCollector(Collector):
    """Exports the release of the service and the version of Python."""

    def collect(self) -> Iterator[Metric]:
        """Yield one sample, always 1."""
        family = GaugeMetricFamily("ingest_build_info", "The running release. Always 1.", labels=["version", "python"])
        family.add_metric([version("order-ingest"), python_version()], 1.0)
        yield family


def _family(spec: Spec) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    match spec.kind:
        case "counter":
            return CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
        case "gauge":
            return GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
        case _:
            return HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)


def _cumulate(bounds: Sequence[float], cells: Sequence[float]) -> list[tuple[str, float]]:
    buckets, seen = [], 0.0
    for bound, cell in zip([*map(str, bounds), "+Inf"], cells, strict=False):
        seen += cell
        buckets.append((bound, seen))
    return buckets
