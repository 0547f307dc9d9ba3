"""Reports of the processes of a deployment about its sources, for all views: rejected configurations."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ingest.domain.operating.source_state import Reason, State, merged


class Rejection(msgspec.Struct, frozen=True):
    """A configuration of a source that a process cannot use.

    Attributes:
        problem: the error, with the file, and whether the previous configuration stays in use.
        since: when the process first found it, in Unix seconds.
    """

    problem: str
    since: float


class ServiceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report of one process.

    Attributes:
        by: the command and its host.
        until: when it expires, in Unix seconds.
        rejected: by source.
    """

    by: str
    until: float
    rejected: Mapping[str, Rejection] = {}


def rejected_since(problems: Mapping[str, str], before: Mapping[str, Rejection], now: float) -> dict[str, Rejection]:
    """Return the rejections with these problems by source, which began before if the source was rejected already."""
    return {
        source: Rejection(problem, before[source].since if source in before else now)
        for source, problem in problems.items()
    }


def rejections_of(reports: Iterable[ServiceReport]) -> Mapping[str, Sequence[Reason]]:
    """Return the reasons for the state `rejected` of each source. Processes with the same problem are named together."""
    found: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for report in reports:
        for source, rejection in report.rejected.items():
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
