"""Checks the settings against each other and against this machine. Each one was validated when it was read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.domain.worker_memory import WorkerMemory
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.operations.doctor.host import Machine

_OF = Checks(Area.SETTINGS)

# Connections to servers, logs and pipes, in addition to connections to the external API. The same as in `ingest.process.lifecycle`.
_OTHER_FILES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """Settings by name without the prefix. Durations are in seconds, sizes in bytes."""

    processes: int
    concurrency: int
    heartbeat_ttl: float
    claim_idle: float
    loop_block_warning: float
    shutdown_grace: float
    batch_bytes: int
    upstream_body_limit: int
    upstream_connect_timeout: float
    upstream_read_timeout: float
    upstream_timeout: float
    upstream_concurrency: int
    upstream_rate: float
    upstream_burst: int
    api_port: int
    api_metrics_port: int
    metrics_port: int
    relay_metrics_port: int


def findings(configured: Configured, unknown: Sequence[str], host: Machine) -> Iterator[Finding]:
    """Report contradictory settings and missing resources.

    Args:
        configured: the settings.
        unknown: a line for each variable that looks like a setting but is unknown.
        host: the machine that the workers will run on.
    """
    for line in unknown:
        yield _OF.warning(line, "correct or remove it. It is ignored")
    yield _files(configured, host)
    yield from _memory(configured, host)
    contradictions = [*_timeouts(configured), *_leases(configured), *_limits(configured), *_ports(configured)]
    yield from contradictions
    if not contradictions:
        yield _OF.ok("no settings contradict each other")


def _files(configured: Configured, host: Machine) -> Finding:
    needed = configured.concurrency + _OTHER_FILES
    if host.open_files is not None and host.open_files < needed:
        return _OF.error(
            f"a process may open {host.open_files:,} files, and needs up to {needed:,}",
            "raise the limit (ulimit -n, LimitNOFILE), or lower INGEST_CONCURRENCY",
        )
    return _OF.ok(f"a process may open the {needed:,} files that it needs")


def _memory(configured: Configured, host: Machine) -> Iterator[Finding]:
    if host.memory is None:
        return
    settings = configured.processes, configured.concurrency, configured.batch_bytes, configured.upstream_body_limit
    memory = WorkerMemory.of(*settings)
    here = f"{host.memory / 1e6:,.0f} MB are available"
    if memory.typical > host.memory:
        yield _OF.error(
            f"a worker needs about {memory.typical / 1e6:,.0f} MB with small documents, and {here}",
            "give it more memory, or lower INGEST_PROCESSES and INGEST_CONCURRENCY",
        )
    elif memory.with_full_batches > host.memory:
        yield _OF.warning(
            f"a worker may use {memory.with_full_batches / 1e6:,.0f} MB with large documents, and {here}",
            "lower INGEST_BATCH_BYTES or INGEST_PROCESSES, or give it more memory",
        )
    else:
        yield _OF.ok(
            f"a worker uses about {memory.typical / 1e6:,.0f} MB, and {memory.worst / 1e6:,.0f} MB if all documents have the"
            f" largest allowed size. {here}"
        )


def _timeouts(configured: Configured) -> Iterator[Finding]:
    for name, value in (
        ("INGEST_UPSTREAM_CONNECT_TIMEOUT", configured.upstream_connect_timeout),
        ("INGEST_UPSTREAM_READ_TIMEOUT", configured.upstream_read_timeout),
    ):
        if value > configured.upstream_timeout:
            yield _OF.warning(
                f"{name} ({value:g} s) is longer than INGEST_UPSTREAM_TIMEOUT ({configured.upstream_timeout:g} s), which ends"
                " a request first",
                f"lower {name}, or raise INGEST_UPSTREAM_TIMEOUT",
            )


def _leases(configured: Configured) -> Iterator[Finding]:
    ttl = configured.heartbeat_ttl
    if configured.claim_idle < 2 * ttl:
        yield _OF.warning(
            f"INGEST_CLAIM_IDLE ({configured.claim_idle:g} s) is less than twice INGEST_HEARTBEAT_TTL ({ttl:g} s), so an order of a"
            " live worker may be delivered again",
            "set it to several times INGEST_HEARTBEAT_TTL. The defaults are 30 s and 6 s",
        )
    if configured.loop_block_warning >= ttl:
        yield _OF.warning(
            f"INGEST_LOOP_BLOCK_WARNING ({configured.loop_block_warning:g} s) is not below INGEST_HEARTBEAT_TTL ({ttl:g} s),"
            " so the process counts as dead before it warns",
            "lower INGEST_LOOP_BLOCK_WARNING. The default is 1 s",
        )


def _limits(configured: Configured) -> Iterator[Finding]:
    if configured.upstream_burst and not configured.upstream_rate:
        yield _OF.warning(
            "INGEST_UPSTREAM_BURST has no effect without INGEST_UPSTREAM_RATE", "set the rate, or remove the burst"
        )
    if configured.upstream_body_limit > configured.batch_bytes:
        yield _OF.warning(
            f"INGEST_UPSTREAM_BODY_LIMIT ({configured.upstream_body_limit:,}) is larger than INGEST_BATCH_BYTES"
            f" ({configured.batch_bytes:,}): a document of this size is stored by itself, and exceeds the memory for batches",
            "raise INGEST_BATCH_BYTES, or lower INGEST_UPSTREAM_BODY_LIMIT",
        )


def _ports(configured: Configured) -> Iterator[Finding]:
    names: dict[int, list[str]] = {}
    for name in ("api_port", "api_metrics_port", "metrics_port", "relay_metrics_port"):
        names.setdefault(getattr(configured, name), []).append(f"INGEST_{name.upper()}")
    for port, shared in names.items():
        if port and len(shared) > 1:
            yield _OF.warning(
                f"{' and '.join(shared)} are both {port}: on one host, only one of them starts",
                "choose a different port for each",
            )
