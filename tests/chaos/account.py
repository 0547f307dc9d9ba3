"""Checks the history of a run, without any code of the service or of its simulated shops.

`python account.py FOLDER` prints a line for each violation, and exits with 1 if there is any. `chaos.history` describes
the files. It uses the standard library only.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Key = tuple[str, str]
FILES = ("documents", "announcements", "requests", "rows", "final", "letters", "unreplicated", "faults")
# The reasons of dead letters that the content of a shop explains.
REASONS = {"missing": "not_found", "broken": "invalid_order"}
# Requests that a fault of the network holds arrive together, until this time after it.
OF_THE_NETWORK = {"API_HALF_OPEN", "API_SLOW"}
SETTLED_AFTER = 5.0
WINDOW = 10.0
# A shared quota permits a burst of one second.
BURST = 1.0
SHOWN = 10


def violations(folder: Path, rate: float | None = None) -> list[str]:
    """A line for each kind of violation.

    Args:
        folder: the folder with the files.
        rate: requests per second that the API of each shop allows, or None for any number.
    """
    events = {name: _read(folder / f"{name}.ndjson") for name in FILES}
    accepted, announced, replicated = set[Key](), set[Key](), set[Key]()
    for event in events["announcements"]:
        orders = {(event["source"], order) for order in event["orders"]}
        announced |= orders
        accepted |= orders if event["accepted"] else set()
        replicated |= orders if event["accepted"] and event.get("replicated") else set()
    # A failover may lose an order, unless its producer has waited for a replica.
    due = accepted - ({_key(event) for event in events["unreplicated"]} - replicated)
    served = {_key(event): event["content"] for event in events["documents"]}
    stored = {_key(event): event for event in events["final"]}
    dead = Counter(_key(event) for event in events["letters"])
    found = {
        "lost": [order for order in due if order not in stored and not dead[order]],
        "stored and dead": [order for order in stored if dead[order]],
        "dead twice": [order for order, count in dead.items() if count > 1],
        "dead without a reason in the shop": [
            _key(event) for event in events["letters"] if REASONS.get(str(served.get(_key(event)))) != event["reason"]
        ],
        "stored and never announced": [order for order in stored if order not in announced],
        "stored, and not in the shop's last version": [
            order for order, event in stored.items() if order in due and event["content"] != served[order]
        ],
        **_written(events["rows"], stored),
    }
    if rate is not None:
        found["beyond the quota"] = list(_beyond(rate, events["requests"], events["faults"]))
    return [_line(kind, sorted(places)) for kind, places in found.items() if places]


def _written(rows: Sequence[Event], stored: Mapping[Key, Event]) -> dict[str, list[Key]]:
    """Violations in the sequence of changes of each row."""
    versions = defaultdict[Key, list[float]](list)
    back = list[Key]()
    for row in rows:
        if row["before"] is not None and row["before"] > row["version"]:
            back.append(_key(row))
        versions[_key(row)].append(row["version"])
    return {
        "replaced by an older version": back,
        "written twice in one version": [order for order, seen in versions.items() if len(set(seen)) < len(seen)],
        "stored without a change": [order for order in stored if order not in versions],
    }


def _beyond(rate: float, requests: Sequence[Event], faults: Sequence[Event]) -> Iterator[Key]:
    """The first window of each shop with more requests than allowed, unless a fault of the network held them."""
    held = [(fault["at"], fault["until"] + SETTLED_AFTER) for fault in faults if fault["kind"] in OF_THE_NETWORK]
    times = defaultdict[str, list[float]](list)
    for event in requests:
        times[event["source"]].append(event["at"])
    for source, moments in times.items():
        moments.sort()
        first = 0
        for number, moment in enumerate(moments):
            while moments[first] <= moment - WINDOW:
                first += 1
            is_held = any(begin < moment and moments[first] < end for begin, end in held)
            if not is_held and number - first + 1 > rate * (WINDOW + BURST):
                yield source, f"at {moments[first]:.1f}"
                break


def _key(event: Event) -> Key:
    return event["source"], event["order"]


def _read(file: Path) -> list[Event]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _line(kind: str, places: Sequence[Key]) -> str:
    shown = ", ".join(" ".join(filter(None, place)) for place in places[:SHOWN])
    return f"{len(places)} {kind}: {shown}{', …' * (len(places) > SHOWN)}"


def main() -> int:
    """Check a folder, with the allowed rate of each API as an optional second argument."""
    folder, *rate = sys.argv[1:]
    found = violations(Path(folder), float(rate[0]) if rate else None)
    for line in found:
        sys.stdout.write(f"{line}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
