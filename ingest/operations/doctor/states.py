"""Reports the causes of incidents that worker processes report, one finding for each server or source, as other views do."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ingest.domain.operating.source_state import POSTGRES, REDIS, State
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.operations.state.notices import Notice
from ingest.operations.state.snapshot import Snapshot

_DECIDE = (
    "check INGEST_UPSTREAM_URL with `ingest doctor --order-id ID` and an order that exists. If the queued IDs are wrong, set"
    " INGEST_UPSTREAM_STATUS=404=not_found (or the status that you see) to dead-letter them"
)
_ADVICE = {
    State.RUNNING: "look for the load of the external API. Orders wait until it responds",
    State.PAUSED: "run `ingest resume{option}` when its orders may be processed again",
    State.DRAINING: "run `ingest drain --undo` with the name of the host or process when it may begin orders again",
    State.THROTTLED: "orders wait until the external API permits more requests. If that is too slow, ask its operator for more",
    State.CIRCUIT_OPEN: "orders wait until the external API recovers, see `ingest status`",
    State.STORE_UNAVAILABLE: "repair PostgreSQL, or end the session that is named. Orders wait, and none is lost",
    State.QUEUE_UNAVAILABLE: "repair Redis. Orders wait, and none is lost",
    State.REJECTED: "correct the configuration of the source",
}
_REJECTED = "run `ingest webhook check{option}` where `ingest api` runs, and look for `webhook_refused` in its log"
_AREAS = {POSTGRES: Area.POSTGRES, REDIS: Area.REDIS, "": Area.WORKERS}
_ERRORS = (State.STORE_UNAVAILABLE, State.QUEUE_UNAVAILABLE, State.REJECTED)


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Report each cause. Servers that cannot be reached are reported by their own checks."""
    if snapshot.problem:
        return
    waiting = any(each.condition.has_work for each in snapshot.sources)
    for each in snapshot.notices:
        # The time of a problem that this process has found is unknown. Its own check of the server reports it.
        is_own = each.reason.server == REDIS and each.reason.since is None
        if not is_own and (each.reason.state is not State.NO_WORKER or waiting):
            yield _finding(each, each.line(snapshot.at))
    for source in snapshot.sources:
        if source.webhooks is not None and source.webhooks.rejected:
            text = f"webhooks rejected within an hour: {source.webhooks.line}"
            advice = _REJECTED.format(option=_option([source.source]))
            yield replace(Checks(Area.WORKERS).warning(text, advice), source=source.source)


def _finding(notice: Notice, line: str) -> Finding:
    reason = notice.reason
    server = reason.server.split(" ")[0]
    checks = Checks(_AREAS.get(server, Area.UPSTREAM))
    is_unproven = reason.needs_operator and reason.state is State.CIRCUIT_OPEN
    advice = _DECIDE if is_unproven else _ADVICE.get(reason.state, "").format(option=_option(notice.sources))
    is_error = is_unproven or reason.state in _ERRORS
    return checks.error(line, advice) if is_error else checks.warning(line, advice)


def _option(sources: Iterable[str]) -> str:
    return "".join(f" --source {each}" for each in sources if each)
