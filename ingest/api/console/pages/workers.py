"""The worker processes with their heartbeats, held entries, open circuits and drains, live."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import inputs_of
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.domain.operating.controls import LOG_LEVELS, Drain, names_of
from ingest.domain.operating.source_state import State
from ingest.operations.state.snapshot import Snapshot
from ingest.queue.operate.monitor import merged
from ingest.queue.operate.partition_monitor import ConsumerState

_LIMIT = 200


@dataclass(frozen=True, slots=True)
class ShownProcess:
    """A worker process, over all its sources.

    Attributes:
        host: Empty for a consumer that is no worker process of ours.
        states: The sources that this process does not process, each with its state.
    """

    state: ConsumerState
    host: str
    drain: Drain | None
    states: Sequence[tuple[str, State]]


class WorkerPages(Pages):
    """`/console/workers`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [self._live.page("workers", "/workers", "workers/list", self._model, "workers.list")]

    async def _model(self, visit: Visit) -> dict[str, Any]:
        form = inputs_of(visit)
        text, after = form.text("text"), form.text("after")
        snapshot = (await self._parts.snapshots.latest()).limited_to(visit.caller.may_use)
        found = [each for each in _processes(snapshot) if text in each.state.name]
        rest = [each for each in found if each.state.name > after]
        shown = rest[:_LIMIT]
        hosts = sorted({each.host for each in found if each.host and each.state.state == "alive"})
        path = "/console/workers"
        return {
            "snapshot": snapshot,
            "processes": shown,
            "gone": _gone(snapshot, text)[:_LIMIT],
            "total": len(found),
            "hosts": [host for host in hosts if host not in snapshot.controls.drains],
            "drains": snapshot.controls.drains,
            "log_levels": snapshot.controls.log_levels,
            "levels": LOG_LEVELS,
            "text": text,
            "first": url(path, text=text or None) if after else None,
            "next": url(path, text=text or None, after=shown[-1].state.name) if len(rest) > _LIMIT else None,
            "may_operate": visit.may("operate") and visit.caller.sources is None,
        }


def _processes(snapshot: Snapshot) -> list[ShownProcess]:
    states: dict[str, list[tuple[str, State]]] = {}
    for source in snapshot.sources:
        for consumer in source.consumers:
            if consumer.reasons:
                states.setdefault(consumer.name, []).append((source.source, consumer.reasons[0].state))
    return [
        ShownProcess(each, _host_of(each.name), snapshot.controls.drain_of(each.name), states.get(each.name, ()))
        for each in merged(source.consumers for source in snapshot.sources)
    ]


def _gone(snapshot: Snapshot, text: str) -> list[ShownProcess]:
    alive = {each.name for source in snapshot.sources for each in source.consumers}
    gone = merged(source.gone for source in snapshot.sources)
    return [
        ShownProcess(each, _host_of(each.name), None, ())
        for each in gone
        if each.name not in alive and text in each.name
    ]


def _host_of(process: str) -> str:
    _, *names = names_of(process)
    return names[-1] if names else ""
