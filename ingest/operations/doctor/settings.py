"""Checks the settings against each other and against this machine. Each one was validated when it was read."""

import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ingest.domain.capacity.worker_memory import WorkerMemory
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.settings import Settings

_OF = Checks(Area.SETTINGS)

# Connections to servers, logs and pipes, in addition to connections to the external API. The same as in `ingest.process.lifecycle`.
_OTHER_FILES = 128
# Version 2 of control groups, and version 1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class Machine:
    """The resources that a process may use on this machine or in this container.

    Attributes:
        memory: bytes, or None if unknown.
        open_files: limit of one process, or None if unlimited.
    """

    memory: int | None
    open_files: int | None

    @classmethod
    def here(cls) -> Self:
        """Return the limits that apply to this process."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return cls(_memory_here(), None if files == resource.RLIM_INFINITY else files)


def findings(settings: Settings, unknown: Sequence[str], host: Machine) -> Iterator[Finding]:
    """Report unknown and contradictory settings, and missing resources of the machine."""
    for line in unknown:
        yield _OF.warning(line, "correct or remove it. It is ignored")
    yield _files(settings, host)
    yield from _memory(settings, host)
    contradictions = [*_timeouts(settings), *_leases(settings), *_limits(settings), *_ports(settings)]
    yield from contradictions
    if not contradictions:
        yield _OF.ok("no settings contradict each other")


def findings_of_source(settings: Settings) -> Iterator[Finding]:
    """Report contradictory settings of a named source."""
    yield from _timeouts(settings)
    yield from _limits(settings)


def _files(settings: Settings, host: Machine) -> Finding:
    needed = settings.concurrency + _OTHER_FILES
    if host.open_files is not None and host.open_files < needed:
        return _OF.error(
            f"a process may open {host.open_files:,} files, and needs up to {needed:,}",
            "raise the limit (ulimit -n, LimitNOFILE), or lower INGEST_CONCURRENCY",
        )
    return _OF.ok(f"a process may open the {needed:,} files that it needs")


def _memory(settings: Settings, host: Machine) -> Iterator[Finding]:
    if host.memory is None:
        return
    memory = WorkerMemory.of(
        settings.processes, settings.concurrency, settings.batch_bytes, settings.upstream_body_limit
    )
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


def _timeouts(settings: Settings) -> Iterator[Finding]:
    for name, value in (
        ("INGEST_UPSTREAM_CONNECT_TIMEOUT", settings.upstream_connect_timeout),
        ("INGEST_UPSTREAM_READ_TIMEOUT", settings.upstream_read_timeout),
    ):
        if value > settings.upstream_timeout:
            yield _OF.warning(
                f"{name} ({value:g} s) is longer than INGEST_UPSTREAM_TIMEOUT ({settings.upstream_timeout:g} s), which ends"
                " a request first",
                f"lower {name}, or raise INGEST_UPSTREAM_TIMEOUT",
            )


def _leases(settings: Settings) -> Iterator[Finding]:
    ttl = settings.heartbeat_ttl
    if settings.claim_idle < 2 * ttl:
        yield _OF.warning(
            f"INGEST_CLAIM_IDLE ({settings.claim_idle:g} s) is less than twice INGEST_HEARTBEAT_TTL ({ttl:g} s), so an order of a"
            " live worker may be delivered again",
            "set it to several times INGEST_HEARTBEAT_TTL. The defaults are 30 s and 6 s",
        )
    if settings.loop_block_warning >= ttl:
        yield _OF.warning(
            f"INGEST_LOOP_BLOCK_WARNING ({settings.loop_block_warning:g} s) is not below INGEST_HEARTBEAT_TTL ({ttl:g} s),"
            " so the process counts as dead before it warns",
            "lower INGEST_LOOP_BLOCK_WARNING. The default is 1 s",
        )


def _limits(settings: Settings) -> Iterator[Finding]:
    if settings.upstream_burst and not settings.upstream_rate:
        yield _OF.warning(
            "INGEST_UPSTREAM_BURST has no effect without INGEST_UPSTREAM_RATE", "set the rate, or remove the burst"
        )
    if settings.upstream_cost and not settings.upstream_rate:
        yield _OF.warning(
            "INGEST_UPSTREAM_COST has no effect without INGEST_UPSTREAM_RATE",
            "set the rate in points, or remove the cost",
        )
    if settings.upstream_body_limit > settings.batch_bytes:
        yield _OF.warning(
            f"INGEST_UPSTREAM_BODY_LIMIT ({settings.upstream_body_limit:,}) is larger than INGEST_BATCH_BYTES"
            f" ({settings.batch_bytes:,}): a document of this size is stored by itself, and exceeds the memory for batches",
            "raise INGEST_BATCH_BYTES, or lower INGEST_UPSTREAM_BODY_LIMIT",
        )


def _ports(settings: Settings) -> Iterator[Finding]:
    names: dict[int, list[str]] = {}
    for name in ("api_port", "api_metrics_port", "metrics_port", "relay_metrics_port"):
        names.setdefault(getattr(settings, name), []).append(f"INGEST_{name.upper()}")
    for port, shared in names.items():
        if port and len(shared) > 1:
            yield _OF.warning(
                f"{' and '.join(shared)} are both {port}: on one host, only one of them starts",
                "choose a different port for each",
            )


def _memory_here() -> int | None:
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    return min([physical, *filter(None, map(_limit, _LIMITS))])


def _limit(path: Path) -> int | None:
    """Return a control group's limit. A word or a very large number in the file means unlimited."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() and int(text) else None
