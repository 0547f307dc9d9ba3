"""The memory of bodies and responses is divided between callers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingest.api.http.memory_budget import MemoryBudget, RequestState
from ingest.api.http.problems import Problem

SIZE = 1_000


def request(memory: MemoryBudget, caller: str = "", *, is_slow: bool = False) -> RequestState:
    dropped: list[Problem] = []
    connection = SimpleNamespace(transport="open", is_slow=is_slow, drop=dropped.append, dropped=dropped)
    return RequestState(cast("Any", connection), memory, caller=caller)


def test_one_caller_holds_at_most_half_in_all_its_requests() -> None:
    memory = MemoryBudget(SIZE)
    first, second = request(memory, "one"), request(memory, "one")
    first.hold(300)
    second.hold(200)

    with pytest.raises(Problem):
        request(memory, "one").hold(1)

    request(memory, "two").hold(500)


def test_a_quarter_is_reserved_for_callers_with_a_key() -> None:
    memory = MemoryBudget(SIZE)
    request(memory).hold(750)

    with pytest.raises(Problem):
        request(memory).hold(1)

    request(memory, "one").hold(250)


def test_a_caller_that_is_identified_counts_as_itself() -> None:
    memory = MemoryBudget(SIZE)
    unknown, known = request(memory), request(memory, "one")
    unknown.hold(300)
    known.hold(300)

    with pytest.raises(Problem):
        memory.identify(unknown, "one")


def test_a_slow_request_makes_room_for_another_one() -> None:
    memory = MemoryBudget(SIZE)
    slow, other = request(memory, is_slow=True), request(memory, "one")
    slow.hold(750)

    other.hold(500)

    assert (slow.held, other.held) == (0, 500)
    assert [problem.code for problem in cast("Any", slow.connection).dropped] == ["body_too_slow"]
