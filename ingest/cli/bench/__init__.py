"""`ingest bench`: measures the service, and the alternatives to it."""

COMMANDS = ("pipeline", "profile", "patterns", "backpressure", "select", "adaptive", "mapping", "http")


def bench() -> None:
    """Measure the service on real servers: throughput, CPU, memory, latency, loss.

    Examples:
    `ingest bench pipeline --vs bare --runs 5` measures the service, and the least code that does the same work.

    `ingest bench patterns --output results` writes a table, JSON and a chart into a directory.

    Every bench needs the extra 'bench', starts its own servers, and removes them at the end.
    """
