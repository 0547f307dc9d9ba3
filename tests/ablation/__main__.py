"""`python -m ablation`: remove each safeguard alone, and expect its tests to notice."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from queue import SimpleQueue

from ablation.copies import Copy
from ablation.safeguards import PARTS, Safeguard, part_of, safeguards

_NOTICED = "noticed"


def main() -> int:
    """Try the chosen safeguards. The exit code is 1 unless tests notice the absence of each."""
    parser = argparse.ArgumentParser(prog="ablation", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the safeguards, one a line, and try none")
    parser.add_argument("--only", metavar="NAME", action="append", help="try this safeguard; repeatable")
    parser.add_argument("--area", metavar="AREA", action="append", help="try the safeguards of one file; repeatable")
    parser.add_argument("--part", help=f"try a tenth: 0 to {PARTS - 1}, or `today` for the part of the date (UTC)")
    parser.add_argument("--jobs", type=int, default=2, help="safeguards that are tried concurrently (2)")
    options = parser.parse_args()
    chosen = safeguards()
    if options.part:
        part = part_of(datetime.now(UTC).date()) if options.part == "today" else int(options.part)
        chosen = chosen[part::PARTS]
    if options.area:
        chosen = [each for each in chosen if each.area in options.area]
    if options.only:
        unknown = set(options.only) - {each.name for each in chosen}
        if unknown:
            parser.error(f"unknown safeguards: {', '.join(sorted(unknown))}")
        chosen = [each for each in chosen if each.name in options.only]
    if options.list:
        for each in chosen:
            _say(f"{each.name}: {each.protects}")
        return 0
    return _try(chosen, options.jobs)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _try(chosen: Sequence[Safeguard], jobs: int) -> int:
    began = time.monotonic()
    with ExitStack() as stack, ThreadPoolExecutor(jobs) as threads:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(jobs):
            copies.put(stack.enter_context(Copy.made()))
        failing = _failing(chosen, copies, jobs)

        def tried(safeguard: Safeguard) -> str:
            if any(test.startswith(name) for test in failing for name in safeguard.tests):
                return "its tests fail with the safeguard"
            copy = copies.get()
            try:
                return verdict_of(copy, safeguard)
            finally:
                copies.put(copy)

        verdicts = threads.map(tried, chosen)
        unnoticed = 0
        for number, (safeguard, verdict) in enumerate(zip(chosen, verdicts, strict=True), 1):
            unnoticed += not verdict.startswith(_NOTICED)
            _say(f"{number}/{len(chosen)} {safeguard.name}: {verdict}")
    seconds = round(time.monotonic() - began)
    _say(f"{len(chosen) - unnoticed} of {len(chosen)} safeguards noticed in {seconds} seconds")
    return 1 if unnoticed else 0


def _failing(chosen: Sequence[Safeguard], copies: "SimpleQueue[Copy]", jobs: int) -> list[str]:
    """The tests that fail in the unchanged tree. Their failure would prove nothing."""
    tests = list(dict.fromkeys(test for each in chosen for test in each.tests))
    copy = copies.get()
    try:
        run = copy.run(tests, "-n", str(jobs), "--dist", "worksteal")
    finally:
        copies.put(copy)
    if not (run.has_passed or run.failed):
        raise SystemExit(copy.run(tests, "-n", "0", "--collect-only").output)
    return run.failed


def verdict_of(copy: Copy, safeguard: Safeguard) -> str:
    """Remove a safeguard in a copy, run its tests, and describe the result."""
    try:
        with copy.without(safeguard):
            run = copy.run(safeguard.tests, "-x", "-n", "0")
    except ValueError as error:
        return f"DOES NOT APPLY: {error}"
    if run.has_noticed:
        return f"{_NOTICED} by {run.failed[0]}"
    if run.has_passed:
        return "NOT NOTICED"
    return f"THE CHANGE DOES NOT RUN:\n{run.output[-3000:]}"


if __name__ == "__main__":
    sys.exit(main())
