"""The measured servers, which are the service's own command and a minimal handler."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ingest.bench.stage import Stage
from ingest.lab.commands import LoggedProcess
from ingest.lab.http_api import wait_until_served
from ingest.lab.servers.server import free_port

SERVERS = {
    "bare": "minimal aiohttp handler",
    "gunicorn": "the same under gunicorn",
    "service": "ingest api",
    "service-fsync": "ingest api, fsync",
}
"""The title of each server, by name."""


@contextmanager
def serving(on: Stage, server: str, processes: int) -> Iterator[tuple[int, Sequence[LoggedProcess]]]:
    """Run the server with this name, and yield its port and the roots of its process trees."""
    port = free_port()
    parts = _start(on, server, processes, port)
    try:
        wait_until_served(parts, port)
        yield port, parts
    finally:
        for part in parts:
            part.kill()


def _start(on: Stage, server: str, processes: int, port: int) -> list[LoggedProcess]:
    if server == "bare":
        return [on.program("ingest.bench.http.bare", str(port)) for _ in range(processes)]
    if server == "gunicorn":
        worker = ("--worker-class", "aiohttp.GunicornUVLoopWebWorker", "--workers", str(processes))
        address = ("--bind", f"127.0.0.1:{port}", "--log-level", "warning")
        return [on.program("gunicorn", *worker, *address, "ingest.bench.http.bare:application")]
    durability = "fsync" if server == "service-fsync" else "memory"
    # Redis responds to a write when it is synced, so that a confirmation does not wait for the next second.
    on.redis.config_set("appendfsync", "always" if durability == "fsync" else "everysec")
    on.commands.configure(
        {
            "INGEST_API_PORT": str(port),
            "INGEST_API_METRICS_PORT": str(free_port()),
            "INGEST_API_PROCESSES": str(processes),
            "INGEST_DURABILITY": durability,
        }
    )
    return [on.commands.start("api")]
