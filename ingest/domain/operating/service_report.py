"""Reports of the processes of a deployment about its sources, for all views: rejected configurations, and webhooks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ingest.domain.operating.source_state import Reason, State, merged

HOUR = 3600.0
_SLOT = 300


class Rejection(msgspec.Struct, frozen=True):
    """A configuration of a source that a process cannot use.

    Attributes:
        problem: the error, with the file, and whether the previous configuration stays in use.
        since: when the process first found it, in Unix seconds.
    """

    problem: str
    since: float


class WebhookCounts(msgspec.Struct, omit_defaults=True):
    """The webhooks of a source that one process has received.

    Attributes:
        accepted_at: when the last one was accepted, in Unix seconds, or None.
        rejected: counts by the beginning of each five minutes in Unix seconds, then by reason.
    """

    accepted_at: float | None = None
    rejected: dict[int, dict[str, int]] = {}

    def reject(self, reason: str, now: float) -> None:
        """Count a rejected webhook, and forget webhooks of more than an hour ago."""
        self.rejected = {slot: counts for slot, counts in self.rejected.items() if slot > now - HOUR}
        counts = self.rejected.setdefault(int(now // _SLOT * _SLOT), {})
        counts[reason] = counts.get(reason, 0) + 1


class ServiceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report of one process.

    Attributes:
        by: the command and its host.
        until: when it expires, in Unix seconds.
        rejected: by source.
        webhooks: by source. They count for an hour after the report has expired.
    """

    by: str
    until: float
    rejected: Mapping[str, Rejection] = {}
    webhooks: Mapping[str, WebhookCounts] = {}


class Webhooks(msgspec.Struct, frozen=True):
    """The webhooks of one source.

    Attributes:
        accepted_at: when the last one was accepted, in Unix seconds, or None if that is unknown.
        rejected: counts of the last hour by reason, the most frequent first.
    """

    accepted_at: float | None
    rejected: Mapping[str, int]

    @property
    def line(self) -> str:
        """The rejected ones, or an empty text."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())


def webhooks_of(reports: Iterable[ServiceReport], now: float) -> Mapping[str, Webhooks]:
    """Return the webhooks of each source that has received some."""
    accepted, rejected = dict[str, float | None](), dict[str, Counter[str]]()
    for report in reports:
        for source, counts in report.webhooks.items():
            times = (at for at in (accepted.get(source), counts.accepted_at) if at is not None)
            accepted[source] = max(times, default=None)
            for slot, reasons in counts.rejected.items():
                if slot > now - HOUR:
                    rejected.setdefault(source, Counter()).update(reasons)
    return {
        source: Webhooks(at, dict(rejected.get(source, Counter()).most_common())) for source, at in accepted.items()
    }


def rejected_since(problems: Mapping[str, str], before: Mapping[str, Rejection], now: float) -> dict[str, Rejection]:
    """Return the rejections with these problems by source, which began before if the source was rejected already."""
    return {
        source: Rejection(problem, before[source].since if source in before else now)
        for source, problem in problems.items()
    }


def rejections_of(reports: Iterable[ServiceReport], now: float) -> Mapping[str, Sequence[Reason]]:
    """Return the reasons for the state `rejected` of each source. Processes with the same problem are named together."""
    found: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for report in reports:
        for source, rejection in report.rejected.items() if report.until > now else ():
            found.setdefault(source, {}).setdefault(rejection.problem, []).append((report.by, rejection.since))
    return {
        source: merged(
            Reason(
                State.REJECTED,
                f"{problem} ({', '.join(sorted({by for by, _ in each}))})",
                min(since for _, since in each),
                needs_operator=True,
            )
            for problem, each in problems.items()
        )
        for source, problems in found.items()
    }
