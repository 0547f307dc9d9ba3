"""The state of a source, in the one place that computes it for all views.

The reasons come from the heartbeats of worker processes, from the controls of operators, and from what the viewer itself finds about
Redis and PostgreSQL.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.operating.controls import Drain, Pause
from ingest.domain.operating.source_state import REDIS, Reason, State, merged, rank

_CANNOT_WORK = (State.CIRCUIT_OPEN, State.STORE_UNAVAILABLE, State.QUEUE_UNAVAILABLE, State.REJECTED)


@dataclass(frozen=True, slots=True)
class Condition:
    """The state of one source.

    Attributes:
        reasons: for the state, and for the others that apply, the most serious first.
        has_work: whether orders wait or are pending.
    """

    state: State
    reasons: Sequence[Reason] = ()
    has_work: bool = False

    @property
    def cannot_work(self) -> bool:
        """Whether its orders are not processed, although no operator has paused it."""
        return self.state in _CANNOT_WORK or (self.state is State.NO_WORKER and self.has_work)


UNREAD = Condition(State.QUEUE_UNAVAILABLE)


def condition_of(
    queue: QueueState | None,
    alive: Mapping[str, Iterable[Reason]],
    last_heartbeat: float | None,
    troubles: Iterable[PartitionTrouble],
    controls: tuple[Pause | None, Callable[[str], Drain | None]],
    servers: Iterable[Reason],
) -> Condition:
    """Return the state of a source.

    Args:
        queue: None while a partition cannot be read.
        alive: the reasons that each live process reports, by its name.
        last_heartbeat: of any worker process, in Unix seconds.
        troubles: of its partitions.
        controls: the pause of the source, and a function that returns the drain of a process.
        servers: found by the viewer, for all sources.
    """
    pause, drain_of = controls
    reported = merged(reason for reasons in alive.values() for reason in reasons)
    known = {each.server for each in reported}
    reasons = [*reported, *(each for each in servers if not each.server or each.server not in known)]
    reasons += [_of_trouble(each) for each in troubles]
    if not alive:
        reasons.append(Reason(State.NO_WORKER, "no worker is running", last_heartbeat))
    if pause is not None:
        reasons.append(_of_pause(pause))
    drains = [drain for name in alive if (drain := drain_of(name)) is not None]
    if alive and len(drains) == len(alive):
        reason = f": {drains[0].reason}" if drains[0].reason else ""
        since = max(each.since for each in drains).timestamp()
        reasons.append(Reason(State.DRAINING, f"drained by {drains[0].by}{reason}", since))
    has_work = queue is None or bool(queue.depth is None or queue.depth or queue.pending or queue.retries_due)
    is_idle = queue is not None and not has_work and not queue.retries
    found = sorted(reasons, key=rank, reverse=True)
    worst = found[0].state if found else State.RUNNING
    return Condition(State.IDLE if worst is State.RUNNING and is_idle else worst, found, has_work)


def _of_trouble(trouble: PartitionTrouble) -> Reason:
    server = f"{REDIS} {trouble.server}" if trouble.server else REDIS
    text = f"{trouble.kind}, partition {trouble.queue}: {trouble.error}"
    return Reason(State.QUEUE_UNAVAILABLE, text, trouble.since, server)


def _of_pause(pause: Pause) -> Reason:
    reason = f": {pause.reason}" if pause.reason else ""
    until = None if pause.until is None else pause.until.timestamp()
    return Reason(State.PAUSED, f"paused by {pause.by}{reason}", pause.since.timestamp(), until=until)
