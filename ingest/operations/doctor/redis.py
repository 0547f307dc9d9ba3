"""Checks Redis: connection, version, writes, rights on commands and keys, and durability."""

from collections.abc import Iterator

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import QueueUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.inspection.facts import RedisFacts
from ingest.queue.redis.connection import QueueRefused
from ingest.settings import Settings

_OF = Checks(Area.REDIS)

# A worker process opens at most this many connections.
_CONNECTIONS_OF_A_PROCESS = 6
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


def findings(facts: RedisFacts | QueueUnavailable, settings: Settings, *, has_quota: bool) -> Iterator[Finding]:
    """Report problems that these facts imply for the service, whose processes may share a quota."""
    if isinstance(facts, QueueUnavailable):
        yield _unusable(facts)
        return
    yield from _version(facts)
    yield _OF.round_trip(
        facts.round_trip, "run the workers near Redis, because an order without a backlog takes several round trips"
    )
    if facts.no_writes:
        yield _no_writes(facts)
    else:
        yield from _commands(facts)
    yield from _keys(facts, settings.stream, has_quota=has_quota)
    yield _OF.clock("Redis", facts.clock_ahead)
    if facts.info:
        yield from _policy(facts)
        yield from _persistence(facts, settings.durability)
        yield from _memory(facts)
        yield from _replication(facts, settings)
        yield from _connections(facts, settings.processes * _CONNECTIONS_OF_A_PROCESS)
    else:
        yield _OF.warning(
            "INFO is not permitted: version, persistence, policy and memory are unknown", "grant INFO, and check again"
        )


def _unusable(error: QueueUnavailable) -> Finding:
    if isinstance(error, QueueRefused):
        passwords = "INGEST_REDIS_PASSWORD, for Sentinels INGEST_REDIS_SENTINEL_PASSWORD"
        return _OF.error(str(error), f"check INGEST_REDIS_URL, and user and password ({passwords})")
    advice = "start it, or check INGEST_REDIS_URL and the network between"
    return _OF.error(
        f"unavailable: {error}", next((advice for words, advice in _RUNNING.items() if words in str(error)), advice)
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


def _no_writes(facts: RedisFacts) -> Finding:
    words = facts.no_writes
    advice = "see Redis' log. It must accept writes"
    if facts.info.get("role") == "slave" or "read only replica" in words.lower():
        advice = "give INGEST_REDIS_URL an address that always leads to the primary"
    elif facts.info.get("cluster_enabled"):
        advice = "write redis+cluster://host:6379 in INGEST_REDIS_URL"
    elif "maxmemory" in words:
        advice = "give it more memory (maxmemory), let workers process the backlog, or export and drop dead letters"
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
    if facts.has_xnack is not None:
        yield _OF.ok(f"newer commands in use: {'XNACK' if facts.has_xnack else 'none, each is substituted'}")


def _keys(facts: RedisFacts, stream: str, *, has_quota: bool) -> Iterator[Finding]:
    quota = [key for key in facts.closed_keys if ":{quota:" in key]
    if own := [key for key in facts.closed_keys if key not in quota]:
        others = f", nor {len(own) - _NAMED:,} others" if len(own) > _NAMED else ""
        yield _OF.error(
            f"the user may not read and write {', '.join(own[:_NAMED])}{others}",
            f"{_RIGHTS}, with the name of your queue",
        )
    for key in quota:
        if has_quota:
            yield _OF.error(f"the user may not use the key {key} of the quota", _RIGHTS)
        else:
            yield _OF.warning(f"the user may not use {key}, so processes cannot share a pause of the API", _RIGHTS)
    for key in facts.other_types:
        yield _OF.error(f"the key {key} is of another type", f"remove that key, or choose another queue than {stream}")


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


def _persistence(facts: RedisFacts, durability: Durability) -> Iterator[Finding]:
    info = facts.info
    if not info.get("aof_enabled"):
        lost = "appendonly is off: a restart loses orders accepted since the last snapshot"
        if durability is Durability.FSYNC:
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


def _replication(facts: RedisFacts, settings: Settings) -> Iterator[Finding]:
    if facts.info.get("role") == "slave" and not facts.no_writes:
        yield _OF.error(
            "is a replica that accepts writes, which are lost",
            "give INGEST_REDIS_URL an address that always leads to the primary",
        )
    replicas = int(facts.info.get("connected_slaves", 0))
    if settings.durability is Durability.REPLICATED and replicas < settings.durability_replicas:
        yield _OF.error(
            f"{replicas} replicas are connected, and INGEST_DURABILITY=replicated waits for {settings.durability_replicas}",
            "connect replicas, or lower INGEST_DURABILITY_REPLICAS",
        )
    # Reported only with `min-replicas-to-write`. Its value would need CONFIG, and a single replica is too few for any.
    if "min_slaves_good_slaves" in facts.info and replicas == 1:
        yield _OF.warning(
            "its only replica, once promoted, rejects orders until this server is back, because of min-replicas-to-write",
            "connect a second replica, or set min-replicas-to-write 0",
        )


def _connections(facts: RedisFacts, needed: int) -> Iterator[Finding]:
    limit, now = int(facts.info.get("maxclients", 0)), int(facts.info.get("connected_clients", 0))
    if not limit:
        return
    what = f"{now:,} of {limit:,} connections are in use, and a worker needs up to {needed:,}"
    if now + needed > limit:
        yield _OF.error(what, "raise maxclients, or lower INGEST_PROCESSES")
    else:
        yield _OF.ok(what)
