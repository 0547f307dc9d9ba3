"""`make simulate`: plays stories in all cores, and prints each story with a violation.

A story takes the same course each time, if the hashes of texts are the same. `PYTHONHASHSEED=0` sets them.
"""

import argparse
import multiprocessing
import os
import sys
import time

from ingest.telemetry.logs import setup_logs
from simulation.planted import try_all
from simulation.story import story_of
from simulation.world import played

_CHUNK = 5
_SHOWN_EVERY = 100


def _play(seed: int) -> tuple[int, list[str]]:
    return seed, played(story_of(seed)).violations


def main() -> int:
    """Play the stories. The exit code is 1 if there is a violation."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="number of stories (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="first seed (%(default)s)")
    parser.add_argument("--step", type=int, default=1, help="between two seeds (%(default)s)")
    parser.add_argument("--seed", type=int, help="play the story of this seed, with the logs of its processes")
    parser.add_argument("--stop", action="store_true", help="stop at the first story with a violation")
    parser.add_argument("--processes", type=int, help="processes that play (one for each core)")
    parser.add_argument(
        "--planted", action="store_true", help="remove safeguards, and count the stories to a violation"
    )
    options = parser.parse_args()
    if options.planted:
        return try_all(options.seeds, options.processes or os.cpu_count() or 1)
    if options.seed is not None:
        setup_logs("json", "info")
        end = played(story_of(options.seed))
        sys.stdout.write(f"course {end.course}\n")
        return _report([(options.seed, end.violations)])
    setup_logs("json", "critical")
    began, done, found = time.monotonic(), 0, []
    seeds = range(options.first, options.first + options.step * options.seeds, options.step)
    with multiprocessing.Pool(options.processes) as processes:
        for done, (seed, lines) in enumerate(processes.imap(_play, seeds, _CHUNK), 1):
            if lines:
                found.append((seed, lines))
                _report(found[-1:])
                if options.stop:
                    break
            if done % _SHOWN_EVERY == 0:
                sys.stderr.write(f"{done:,} of {options.seeds:,}, {len(found)} with violations\n")
    sys.stdout.write(
        f"{done:,} stories from seed {options.first} in {time.monotonic() - began:.0f} s, "
        f"{len(found)} with violations\n"
    )
    return int(bool(found))


def _report(found: list[tuple[int, list[str]]]) -> int:
    for seed, lines in found:
        sys.stdout.write("\n".join([str(story_of(seed)), *(f"VIOLATION: {line}" for line in lines), ""]) + "\n")
        sys.stdout.flush()
    return int(any(lines for _, lines in found))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
