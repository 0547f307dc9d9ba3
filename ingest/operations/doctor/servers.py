"""Checks all servers of Redis: each primary, the Sentinels, the cluster as a whole, and the partitions of the queues."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ingest.domain.deliveries.partition_trouble import TroubleKind
from ingest.domain.errors import QueueUnavailable
from ingest.operations.doctor import redis, sentinels
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.inspection.facts import RedisFacts
from ingest.queue.operate.inspection.servers import ServersFacts
from ingest.settings import Settings

_OF = Checks(Area.REDIS)
_SLOTS = 16_384
_ADVICE = {
    TroubleKind.SLOW: "its orders wait for it, and others do not. Look for its load, its disk and the network between",
    TroubleKind.DENIED: "give the node the users of the other nodes",
    TroubleKind.RESHARDING: "finish moving its slot, or end the move with CLUSTER SETSLOT STABLE",
    TroubleKind.UNAVAILABLE: "bring its server back. Its orders wait, and others do not",
}


def findings(
    facts: ServersFacts | QueueUnavailable, settings: Settings, partitions: Mapping[str, int], *, has_quota: bool
) -> Iterator[Finding]:
    """Report problems of the servers.

    Args:
        facts: of the servers.
        settings: of the service.
        partitions: the configured number of partitions of each queue.
        has_quota: whether processes share a quota.
    """
    if isinstance(facts, QueueUnavailable):
        yield from redis.findings(facts, settings, has_quota=has_quota)
        return
    for address, server in facts.servers.items():
        of_server = redis.findings(server, settings, has_quota=has_quota)
        if facts.is_cluster:
            yield from (replace(each, what=f"node {address}: {each.what}") for each in of_server)
        else:
            yield from of_server
    yield from sentinels.findings(facts.sentinels)
    if facts.is_cluster:
        yield from _cluster(facts)
    yield from _partitions(facts, partitions)
    yield from _entry_ids(facts)
    yield from (_OF.warning(each.text, _ADVICE[each.kind]) for each in facts.troubles)


def _cluster(facts: ServersFacts) -> Iterator[Finding]:
    nodes = {address: each for address, each in facts.servers.items() if isinstance(each, RedisFacts)}
    views = [node.cluster for node in nodes.values() if node.cluster]
    if not views:
        yield _OF.warning("CLUSTER INFO is not permitted: the state of the cluster is unknown", "grant CLUSTER|INFO")
        return
    served = min(int(view.get("cluster_slots_ok", 0)) for view in views)
    if any(view.get("cluster_state") != "ok" for view in views) or served < _SLOTS:
        yield _OF.error(
            f"the cluster serves {served:,} of {_SLOTS:,} slots",
            "bring its missing nodes back, or let replicas replace them",
        )
    else:
        yield _OF.ok(f"{len(facts.servers):,} primaries serve all {_SLOTS:,} slots")
    for address, node in nodes.items():
        if node.info and not int(node.info.get("connected_slaves", 0)):
            yield _OF.warning(
                f"node {address}: has no replica. If it fails, its partitions wait until it returns",
                "connect a replica to it",
            )
    versions = {
        str(node.info.get("valkey_version") or node.info.get("redis_version")) for node in nodes.values() if node.info
    }
    if len(versions) > 1:
        yield _OF.warning(
            f"its nodes have different versions: {', '.join(sorted(versions))}", "upgrade the older nodes"
        )


def _partitions(facts: ServersFacts, configured: Mapping[str, int]) -> Iterator[Finding]:
    for queue, layout in facts.layouts.items():
        if not layout.generation:
            continue
        if layout.former:
            former = " and ".join(f"{number:,}" for number in layout.former)
            yield _OF.warning(
                f"the queue {queue} still changes from {former} to {layout.partitions:,} partitions",
                f"run `ingest partitions set {layout.partitions}` again, unless it is running",
            )
        if layout.partitions != configured[queue]:
            yield _OF.warning(
                f"the queue {queue} has {layout.partitions:,} partitions, and the setting is {configured[queue]:,}, which is ignored",
                f"change the queue by `ingest partitions set {configured[queue]}`, or change the setting",
            )
        on_nodes = Counter(facts.owners[each] for each in layout.current if each in facts.owners)
        spread = ", ".join(f"{count:,} on {address}" for address, count in sorted(on_nodes.items()))
        yield _OF.ok(f"the queue {queue} has {layout.partitions:,} partitions: {spread}")


def _entry_ids(facts: ServersFacts) -> Iterator[Finding]:
    advice = "replace the password of the program that writes such IDs, then run `ingest partitions repair`"
    for queue, state in facts.states.items():
        for problem in state.id_problems:
            yield _OF.error(f"the queue {queue}: {problem}", advice)
