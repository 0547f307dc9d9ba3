"""Checks Redis: connection, version, writes, rights on commands and keys, and durability."""

from collections.abc import Iterator
from dataclasses import dataclass

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import QueueUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.inspection import RedisFacts
from ingest.queue.redis.connection import QueueRefused

_OF = Checks(Area.REDIS)

# A worker process opens at most this many connections, see docs/explanation/performance.md, "Cost of the queue in Redis".
CONNECTIONS_OF_A_PROCESS = 6
# Leases and heartbeats are compared by one clock, so a difference is harmless by itself. It misleads readers of timestamps.
LARGEST_CLOCK_DIFFERENCE = 5.0
_SLOW = 0.1
_FULL = 0.8
# Keys that one line names.
_NAMED = 3
_OLDEST = {"redis": (7, 0), "valkey": (8, 0)}
# Messages of a server that is running but cannot be used now, with advice.
_RUNNING = {
    "max number of clients": "raise maxclients, or close connections of other programs (CLIENT LIST lists them)",
    "BUSY": "wait for the running script, or end it with SCRIPT KILL",
    "loading": "wait until it has loaded its data",
}
_RIGHTS = "give its user the rights in deploy/redis/users.acl"


@dataclass(frozen=True, slots=True)
class RedisNeeds:
    """Requirements of Redis that follow from the settings.

    Attributes:
        connections: number of connections of one `ingest worker`.
        durability: guarantee that the HTTP API gives when it confirms orders.
        replicas: number of replicas that must confirm, if orders are replicated.
        stream: name of the queue.
        has_quota: whether processes share a quota.
    """

    connections: int
    durability: Durability
    replicas: int
    stream: str
    has_quota: bool


def unusable(error: QueueUnavailable) -> Finding:
    """Report that Redis cannot be used at all."""
    if isinstance(error, QueueRefused):
        return _OF.error(str(error), "check INGEST_REDIS_URL, and user and password (INGEST_REDIS_PASSWORD)")
    advice = "start it, or check INGEST_REDIS_URL and the network between"
    return _OF.error(
        f"unavailable: {error}", next((advice for words, advice in _RUNNING.items() if words in str(error)), advice)
    )


def findings(facts: RedisFacts, needs: RedisNeeds) -> Iterator[Finding]:
    """Report problems that these facts imply for the service."""
    yield from _version(facts)
    yield _speed(facts)
    if facts.no_writes:
        yield _no_writes(facts)
    else:
        yield from _commands(facts)
    yield from _keys(facts, needs)
    yield _clock(facts)
    if facts.info:
        yield from _policy(facts)
        yield from _persistence(facts, needs)
        yield from _memory(facts)
        yield from _replication(facts, needs)
        yield from _connections(facts, needs)
    else:
        yield _OF.warning(
            "INFO is not permitted: version, persistence, policy and memory are unknown", "grant INFO, and check again"
        )


def _version(facts: RedisFacts) -> Iterator[Finding]:
    product = "valkey" if "valkey_version" in facts.info else "redis"
    text = str(facts.info.get(f"{product}_version", ""))
    try:
        version = tuple(int(part) for part in text.split(".")[:2])
    except ValueError:
        version = ()
    if not version:
        return
    name, oldest = product.capitalize(), _OLDEST[product]
    if version < oldest:
        needed = ".".join(map(str, oldest))
        yield _OF.error(f"{name} {text} is too old", f"use {name} {needed} or newer")
    else:
        yield _OF.ok(f"{name} {text}")


def _speed(facts: RedisFacts) -> Finding:
    if facts.round_trip > _SLOW:
        return _OF.warning(
            f"a round trip takes {facts.round_trip * 1000:.0f} ms",
            "run the workers near Redis, because an order without a backlog takes several round trips",
        )
    return _OF.ok(f"a round trip takes {facts.round_trip * 1000:.1f} ms")


def _no_writes(facts: RedisFacts) -> Finding:
    words = facts.no_writes
    advice = "see Redis' log. It must accept writes"
    if facts.info.get("role") == "slave" or "read only replica" in words.lower():
        advice = "give INGEST_REDIS_URL an address that always leads to the primary"
    elif "MOVED" in words or facts.info.get("cluster_enabled"):
        advice = "give the URL of a Redis without cluster mode"
    elif "maxmemory" in words:
        advice = "give it more memory (maxmemory), or let workers process the backlog. Until then, producers wait"
    elif "RDB" in words or "AOF" in words or "disk" in words.lower():
        advice = "free space on its disk, or repair it: Redis cannot save its data"
    elif "replicas" in words.lower():
        advice = "bring its replicas back, or lower min-replicas-to-write"
    return _OF.error(f"does not accept writes: {words}", advice)


def _commands(facts: RedisFacts) -> Iterator[Finding]:
    if facts.refused:
        yield _OF.error(f"the user may not send {', '.join(facts.refused)}", _RIGHTS)
    if facts.unknown:
        yield _OF.error(
            f"the server does not support {', '.join(facts.unknown)}", "use Redis 7.0 or newer, or Valkey 8 or newer"
        )
    if not facts.refused and not facts.unknown:
        yield _OF.ok("all commands of a worker are permitted")
    if (newer := facts.capabilities) is not None:
        names = {
            "XACKDEL": newer.acks_and_deletes,
            "XREADGROUP CLAIM": newer.claims_as_it_reads,
            "XADD IDMP": newer.adds_idempotently,
            "XNACK": newer.releases,
        }
        found = ", ".join(name for name, is_there in names.items() if is_there)
        yield _OF.ok(f"newer commands in use: {found or 'none, each is substituted'}")


def _keys(facts: RedisFacts, needs: RedisNeeds) -> Iterator[Finding]:
    quota = [key for key in facts.closed_keys if ":{quota:" in key]
    if own := [key for key in facts.closed_keys if key not in quota]:
        others = f", nor {len(own) - _NAMED:,} others" if len(own) > _NAMED else ""
        yield _OF.error(
            f"the user may not read and write {', '.join(own[:_NAMED])}{others}",
            f"{_RIGHTS}, with the name of your queue",
        )
    for key in quota:
        if needs.has_quota:
            yield _OF.error(f"the user may not use the key {key} of the quota", _RIGHTS)
        else:
            yield _OF.warning(f"the user may not use {key}, so processes cannot share a pause of the API", _RIGHTS)
    for key in facts.other_types:
        yield _OF.error(
            f"the key {key} is of another type", f"remove that key, or choose another queue than {needs.stream}"
        )


def _clock(facts: RedisFacts) -> Finding:
    return clock_finding(_OF, "Redis", facts.clock_ahead)


def clock_finding(of: Checks, server: str, ahead: float | None) -> Finding:
    """Report by how many seconds a server's clock is ahead of ours. None if the time is not permitted to be read."""
    if ahead is None:
        return of.warning(f"the clock of {server} may not be read", "grant the right to read the time")
    if abs(ahead) <= LARGEST_CLOCK_DIFFERENCE:
        return of.ok(f"its clock differs by {abs(ahead) * 1000:.0f} ms from this machine's")
    direction = "ahead of" if ahead > 0 else "behind"
    return of.warning(
        f"its clock is {abs(ahead):,.0f} s {direction} this machine's",
        "synchronize both by NTP, because due times, ages and versions of orders follow these clocks",
    )


def _policy(facts: RedisFacts) -> Iterator[Finding]:
    policy = str(facts.info.get("maxmemory_policy", ""))
    advice = "set maxmemory-policy to noeviction"
    if policy.startswith("allkeys"):
        yield _OF.error(f"maxmemory-policy is {policy}: Redis may delete the queue itself", advice)
    elif policy.startswith("volatile"):
        yield _OF.warning(
            f"maxmemory-policy is {policy}: Redis may delete idempotency records, and accept orders twice", advice
        )
    elif policy:
        yield _OF.ok(f"maxmemory-policy is {policy}")


def _persistence(facts: RedisFacts, needs: RedisNeeds) -> Iterator[Finding]:
    info = facts.info
    if not info.get("aof_enabled"):
        lost = "appendonly is off: a restart loses orders accepted since the last snapshot"
        if needs.durability is Durability.FSYNC:
            yield _OF.error(f"{lost}, so INGEST_DURABILITY=fsync cannot be guaranteed", "set appendonly to yes")
        else:
            yield _OF.warning(lost, "set appendonly to yes")
    elif info.get("aof_last_write_status", "ok") != "ok":
        yield _OF.error("its last write to the append-only file has failed", "free space on its disk, or repair it")
    else:
        yield _OF.ok("the append-only file is on")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield _OF.warning("its last snapshot has failed", "see Redis' log. Often its disk or its memory is full")


def _memory(facts: RedisFacts) -> Iterator[Finding]:
    used, limit = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0))
    total = int(facts.info.get("total_system_memory", 0))
    of_what, most = ("maxmemory", limit) if limit else ("its machine's memory", total)
    if not most:
        return
    what = f"{used / 1e6:,.0f} MB of {most / 1e6:,.0f} MB ({of_what}) are used"
    if used >= _FULL * most:
        yield _OF.warning(what, "give it more, or process the backlog. When it is full, orders are rejected")
    else:
        yield _OF.ok(what)


def _replication(facts: RedisFacts, needs: RedisNeeds) -> Iterator[Finding]:
    if facts.info.get("role") == "slave" and not facts.no_writes:
        yield _OF.error(
            "is a replica that accepts writes, which are lost",
            "give INGEST_REDIS_URL an address that always leads to the primary",
        )
    replicas = int(facts.info.get("connected_slaves", 0))
    if needs.durability is Durability.REPLICATED and replicas < needs.replicas:
        yield _OF.error(
            f"{replicas} replicas are connected, and INGEST_DURABILITY=replicated waits for {needs.replicas}",
            "connect replicas, or lower INGEST_DURABILITY_REPLICAS",
        )


def _connections(facts: RedisFacts, needs: RedisNeeds) -> Iterator[Finding]:
    limit, now = int(facts.info.get("maxclients", 0)), int(facts.info.get("connected_clients", 0))
    if not limit:
        return
    what = f"{now:,} of {limit:,} connections are in use, and a worker needs up to {needs.connections:,}"
    if now + needs.connections > limit:
        yield _OF.error(what, "raise maxclients, or lower INGEST_PROCESSES")
    else:
        yield _OF.ok(what)
