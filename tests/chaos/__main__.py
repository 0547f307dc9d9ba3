"""`python -m chaos`: the command line of the chaos run."""

import argparse
import json
import secrets
import signal
import sys
from pathlib import Path

from chaos.plan import Kind, RedisKind
from chaos.run import Options, run
from chaos.stage import FEATURES
from ingest.domain.deliveries.accepted import Durability
from ingest.lab.servers import sigterm_raises


def main() -> int:
    """Run it. The exit code is 1 unless every order is accounted for."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults strike (1)")
    parser.add_argument("--seed", type=int, default=None, help="decides which faults strike when (random)")
    parser.add_argument("--orders", type=float, default=100.0, help="orders announced per second, in all sources (100)")
    parser.add_argument("--processes", type=int, default=4, help="worker processes, of two commands (4)")
    parser.add_argument("--sources", type=int, default=3, help="sources, each a shop with its own API (3)")
    parser.add_argument(
        "--redis-server", type=Path, default=None, help="the program to use for Redis (embedded Valkey)"
    )
    parser.add_argument(
        "--topology",
        type=RedisKind,
        choices=RedisKind,
        default=RedisKind.STANDALONE,
        help="how Redis runs (standalone)",
    )
    parser.add_argument(
        "--durability",
        type=Durability,
        choices=Durability,
        default=Durability.MEMORY,
        help="of accepted orders (memory)",
    )
    parser.add_argument("--partitions", type=int, default=1, help="of the queue of each source (1)")
    parser.add_argument(
        "--with",
        dest="features",
        action="append",
        choices=FEATURES,
        default=[],
        help="also use this feature (repeatable)",
    )
    parser.add_argument(
        "--only",
        type=lambda name: Kind[name.upper()],
        action="append",
        default=[],
        metavar="FAULT",
        help=f"only faults of this kind (repeatable): {', '.join(kind.name.lower() for kind in Kind)}",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--keep", action="store_true", help="keep logs, data and history, also if all is well")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with sigterm_raises():
            report = run(
                Options(
                    seed,
                    given.minutes * 60,
                    given.orders,
                    given.processes,
                    given.sources,
                    given.redis_server,
                    given.keep,
                    given.topology,
                    given.durability,
                    given.partitions,
                    tuple(given.features),
                    tuple(given.only or Kind),
                )
            )
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    sys.stdout.write((json.dumps(report.as_dict(), default=str) if given.json else str(report)) + "\n")
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
