"""The reasons for the state of a source on /metrics, by the rules of all other views."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.operating.condition import condition_of
from ingest.domain.operating.controls import NO_CONTROLS, Controls
from ingest.domain.operating.service_report import ServiceReport, rejections_of
from ingest.domain.operating.source_state import Reason
from ingest.queue.operate.partition_monitor import GroupState
from ingest.telemetry.collectors import ObservedQueue


def observed_reasons(
    queue: ObservedQueue,
    groups: Iterable[GroupState | Exception | None],
    troubles: Sequence[PartitionTrouble],
    controls: Controls | None,
    reports: Sequence[ServiceReport] = (),
) -> Sequence[Reason]:
    """Return the reasons. Groups that cannot be read contain an error."""
    known = [each for each in groups if isinstance(each, GroupState)]
    if not known:
        return []
    alive: dict[str, list[Reason]] = {}
    for group in known:
        for each in group.consumers:
            if each.state == "alive":
                alive.setdefault(each.name, []).extend(each.reasons)
    latest = max((each.last_heartbeat for each in known if each.last_heartbeat is not None), default=None)
    controls, rejections = controls or NO_CONTROLS, rejections_of(reports, time.time()).get(queue.source, ())
    pause = controls.pause_of(queue.source, datetime.now(UTC))
    return condition_of(queue.state, alive, latest, troubles, (pause, controls.drain_of), rejections).reasons
