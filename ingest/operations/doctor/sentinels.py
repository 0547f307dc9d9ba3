"""Checks the Sentinels that INGEST_REDIS_URL names: how many respond, and whether they can replace the primary."""

from collections.abc import Iterator, Sequence

from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.inspection.sentinels import SentinelFacts

_OF = Checks(Area.REDIS)
# With fewer, the failure of one Sentinel prevents a failover.
_FEWEST = 3


def findings(sentinels: Sequence[SentinelFacts]) -> Iterator[Finding]:
    """Report problems of a failover."""
    usable = [each for each in sentinels if not each.problem]
    for each in sentinels:
        if each.problem:
            yield _OF.warning(
                f"Sentinel {each.address}: {each.problem}",
                "start it, or correct INGEST_REDIS_URL, its user and its password",
            )
    if not usable:
        return
    primaries = sorted({f"{each.service.get('ip')}:{each.service.get('port')}" for each in usable})
    if len(primaries) > 1:
        yield _OF.error(
            f"the Sentinels report different primaries: {', '.join(primaries)}",
            "wait for the end of the failover. If it does not end, check the network between the Sentinels",
        )
    examined = [each for each in usable if not each.is_denied]
    if len(examined) < len(usable):
        yield _OF.warning(
            "the user of the Sentinels may only read the address of the primary: quorum and replicas are unknown",
            "grant +sentinel|master and +sentinel|ckquorum",
        )
    if examined:
        yield from _failover(examined, len(sentinels))


def _failover(usable: Sequence[SentinelFacts], named: int) -> Iterator[Finding]:
    """Report whether the Sentinels can replace the primary."""
    known = 1 + max(_number(each, "num-other-sentinels") for each in usable)
    quorum = max(_number(each, "quorum") for each in usable)
    problems = sorted({each.no_quorum for each in usable if each.no_quorum})
    for problem in problems:
        yield _OF.error(f"the Sentinels cannot replace the primary: {problem}", "start the missing Sentinels")
    if known < _FEWEST:
        yield _OF.warning(
            f"only {known:,} Sentinels watch the primary, so that the failure of one prevents a failover",
            "run at least three",
        )
    if not max(_number(each, "num-slaves") for each in usable):
        yield _OF.warning("the primary has no replica that could replace it", "connect a replica")
    if not problems:
        yield _OF.ok(f"{len(usable):,} of {named:,} Sentinels respond, and the quorum of {quorum:,} is reached")


def _number(facts: SentinelFacts, name: str) -> int:
    return int(facts.service.get(name, 0))
