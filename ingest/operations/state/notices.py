"""One notice for each cause of an incident, for all views."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ingest.domain.durations import format_duration
from ingest.domain.operating.condition import Condition
from ingest.domain.operating.source_state import POSTGRES, REDIS, Reason, State, rank

# Characters of a cause that is shortened.
_SHORTEST = 60


def condition_as_object(condition: Condition) -> dict[str, Any]:
    """Return it for JSON."""
    reasons = [
        {**msgspec.structs.asdict(each), "since": _as_time(each.since), "until": _as_time(each.until)}
        for each in condition.reasons
    ]
    return {"state": condition.state.value, "cannot_work": condition.cannot_work, "reasons": reasons}


def _as_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Notice:
    """One cause, and the sources that it concerns. A server of all sources is named once.

    Attributes:
        sources: their names. Empty if it concerns all.
    """

    reason: Reason
    sources: Sequence[str] = ()

    @property
    def is_bad(self) -> bool:
        """Whether orders are not processed, and no operator wants that."""
        return rank(self.reason) >= rank(Reason(State.CIRCUIT_OPEN, ""))

    @property
    def subject(self) -> str:
        """The server, or the source."""
        reason = self.reason
        if _is_shared(reason):
            return reason.server
        names = ", ".join(self.sources)
        return ": ".join(each for each in (names, reason.server) if each)

    @property
    def advice(self) -> str:
        """The command that ends it, or nothing."""
        if self.reason.state is not State.NO_WORKER:
            return ""
        option = "".join(f" --source {name}" for name in self.sources if name)
        return f"start one with `ingest worker{option}`"

    def lasting(self, now: datetime) -> str:
        """For how long, since when, and until when."""
        parts = []
        if self.reason.since is not None:
            since = datetime.fromtimestamp(self.reason.since, UTC)
            parts.append(
                f"for {format_duration(max(0.0, now.timestamp() - self.reason.since))}, since {since:%Y-%m-%d %H:%M:%S} UTC"
            )
        if self.reason.until is not None:
            parts.append(f"until {datetime.fromtimestamp(self.reason.until, UTC):%Y-%m-%d %H:%M:%S} UTC")
        return ", ".join(parts)

    def line(self, now: datetime, width: int = 0) -> str:
        """The notice in one line. A long cause is shortened, and not the times after it, to fit the `width`."""
        text, lasting = " ".join(self.reason.text.split()), self.lasting(now)
        left = width - len(self.subject) - len(lasting) - 6
        if width and _SHORTEST <= left < len(text):
            text = f"{text[: left - 1]}…"
        text += f" ({lasting})" if lasting else ""
        concerned = f", concerns {', '.join(self.sources)}" if _is_shared(self.reason) and self.sources else ""
        advice = f": {self.advice}" if self.advice else ""
        subject = f"{self.subject}: " if self.subject else ""
        return f"{subject}{text}{concerned}{advice}"


def notices_of(conditions: Mapping[str, Condition]) -> Sequence[Notice]:
    """Return one notice for each cause, by the conditions of all sources."""
    found: dict[tuple[object, ...], list[tuple[str, Reason]]] = {}
    for source, condition in conditions.items():
        for reason in condition.reasons:
            if reason.state is State.NO_WORKER and condition.state is State.REJECTED:
                # The processes that reject the source start it when it is corrected.
                continue
            key: tuple[object, ...] = (reason.state, reason.server)
            if not _is_shared(reason):
                key = (*key, reason.text, source)
            if reason.state is State.NO_WORKER and all(each.state is State.NO_WORKER for each in conditions.values()):
                key = (reason.state,)
            found.setdefault(key, []).append((source, reason))
    notices = []
    for each in found.values():
        state = each[0][1].state
        sources = list(dict.fromkeys(source for source, _ in each))
        first = min((reason for _, reason in each), key=lambda reason: reason.since or float("inf"))
        if state is State.NO_WORKER and len(sources) > 1:
            # The last process may have run some of the sources only.
            first = msgspec.structs.replace(first, since=max((reason.since or 0.0 for _, reason in each)) or None)
        is_of_all = len(sources) == len(conditions) and (len(sources) > 1 or _is_shared(first) or sources == [""])
        notices.append(Notice(first, [] if is_of_all else sources))
    return sorted(notices, key=lambda each: rank(each.reason), reverse=True)


def _is_shared(reason: Reason) -> bool:
    return reason.server == POSTGRES or reason.server.startswith(REDIS)
