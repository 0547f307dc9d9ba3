"""The check of a history finds each planted violation, and no other in a sound history."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos import account

History = dict[str, list[dict[str, Any]]]
CONTENT = ["placed", "EUR", 2]
RATE = 2.0


def sound() -> History:
    """Two shops that share an ID: an order that changed once, a missing order and a lost announcement."""
    return {
        "documents": [
            {"at": 1.0, "source": "a", "order": "1", "content": CONTENT},
            {"at": 1.0, "source": "b", "order": "1", "content": CONTENT},
            {"at": 5.0, "source": "a", "order": "1", "content": ["sent", "EUR", 2]},
            {"at": 6.0, "source": "a", "order": "2", "content": "missing"},
            {"at": 7.0, "source": "a", "order": "3", "content": CONTENT},
        ],
        "announcements": [
            {"at": 1.1, "source": "a", "orders": ["1"], "accepted": True},
            {"at": 1.1, "source": "b", "orders": ["1"], "accepted": True},
            {"at": 5.1, "source": "a", "orders": ["1", "2"], "accepted": True},
            {"at": 7.1, "source": "a", "orders": ["3"], "accepted": False},
        ],
        "requests": [{"at": float(moment), "source": "a", "path": "/orders/1"} for moment in range(1, 15)],
        "rows": [
            {"at": 2.0, "source": "a", "order": "1", "version": 1.0, "before": None},
            {"at": 2.0, "source": "b", "order": "1", "version": 1.0, "before": None},
            {"at": 6.0, "source": "a", "order": "1", "version": 5.0, "before": 1.0},
        ],
        "final": [
            {"at": 9.0, "source": "a", "order": "1", "content": ["sent", "EUR", 2]},
            {"at": 9.0, "source": "b", "order": "1", "content": CONTENT},
        ],
        "letters": [{"at": 9.0, "source": "a", "order": "2", "reason": "not_found"}],
        "faults": [{"at": 20.0, "until": 30.0, "kind": "API_SLOW"}],
    }


def write(folder: Path, history: History) -> None:
    for name, events in history.items():
        (folder / f"{name}.ndjson").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_a_sound_history_has_no_violation(tmp_path: Path) -> None:
    write(tmp_path, sound())

    assert account.violations(tmp_path, RATE) == []


def lose(history: History) -> None:
    history["final"] = [event for event in history["final"] if event["source"] == "a"]


def lose_what_a_replica_had(history: History) -> None:
    lose(history)
    history["announcements"][1]["replicated"] = True
    history["unreplicated"] = [{"at": 9.0, "source": "b", "order": "1"}]


def keep_the_first_version(history: History) -> None:
    history["final"][0]["content"] = CONTENT


def mix_up_the_shops(history: History) -> None:
    history["final"][1]["content"] = ["placed", "NOK", 2]


def write_twice(history: History) -> None:
    history["rows"].append(history["rows"][1] | {"at": 8.0, "before": 1.0})


def go_back(history: History) -> None:
    history["rows"].append({"at": 8.0, "source": "a", "order": "1", "version": 4.0, "before": 5.0})


def blame(history: History) -> None:
    history["letters"].append({"at": 9.0, "source": "a", "order": "3", "reason": "attempts_exhausted"})


def blame_twice(history: History) -> None:
    history["letters"] *= 2


def store_a_dead_order(history: History) -> None:
    history["letters"].append({"at": 9.0, "source": "b", "order": "1", "reason": "not_found"})
    history["documents"].append({"at": 1.2, "source": "b", "order": "1", "content": "missing"})
    history["announcements"][1]["accepted"] = False


def invent(history: History) -> None:
    history["final"].append({"at": 9.0, "source": "b", "order": "9", "content": CONTENT})
    history["rows"].append({"at": 8.0, "source": "b", "order": "9", "version": 1.0, "before": None})


def store_in_silence(history: History) -> None:
    history["rows"] = history["rows"][:1] + history["rows"][2:]


def hammer(history: History) -> None:
    history["requests"] += [{"at": 5.5, "source": "a", "path": "/orders/1"}] * 13


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose, "1 lost: b 1"),
        (lose_what_a_replica_had, "1 lost: b 1"),
        (keep_the_first_version, "1 stored, and not in the shop's last version: a 1"),
        (mix_up_the_shops, "1 stored, and not in the shop's last version: b 1"),
        (write_twice, "1 written twice in one version: b 1"),
        (go_back, "1 replaced by an older version: a 1"),
        (blame, "1 dead without a reason in the shop: a 3"),
        (blame_twice, "1 dead twice: a 2"),
        (store_a_dead_order, "1 stored and dead: b 1"),
        (invent, "1 stored and never announced: b 9"),
        (store_in_silence, "1 stored without a change: b 1"),
        (hammer, "beyond the quota: a at 1.0"),
    ],
)
def test_each_planted_violation_is_found_alone(tmp_path: Path, plant: Callable[[History], None], found: str) -> None:
    history = sound()
    plant(history)
    write(tmp_path, history)

    (line,) = account.violations(tmp_path, RATE)

    assert line.endswith(found)


def test_a_fault_of_the_network_excuses_requests_that_arrive_together(tmp_path: Path) -> None:
    history = sound()
    hammer(history)
    history["faults"].append({"at": 3.0, "until": 5.0, "kind": "API_HALF_OPEN"})
    write(tmp_path, history)

    assert account.violations(tmp_path, RATE) == []


def test_an_order_that_replication_lost_is_not_lost_by_the_service(tmp_path: Path) -> None:
    history = sound()
    lose(history)
    history["unreplicated"] = [{"at": 9.0, "source": "b", "order": "1"}]
    write(tmp_path, history)

    assert account.violations(tmp_path, RATE) == []


def test_it_runs_without_any_module_of_the_project(tmp_path: Path) -> None:
    history = sound()
    lose(history)
    write(tmp_path, history)

    done = subprocess.run(
        [sys.executable, "-I", "-S", account.__file__, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, "1 lost: b 1\n")
