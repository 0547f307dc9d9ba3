"""The adaptive limit finds the capacity of an external API, and follows its changes."""

import pytest
from fakes.workers import gauge
from hypothesis import given
from hypothesis import strategies as st
from unit.attempts import Api
from unit.evidence import Hand

from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses

# -- capacity -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [25, 100, 400])
def test_it_begins_with_a_few_and_finds_the_capacity_within_ten_seconds(capacity: int) -> None:
    api = Api(capacity=capacity)
    assert api.values == 20

    api.run(10)
    share = api.run(20)

    assert share > 0.95
    assert capacity <= api.values < 1.5 * capacity


@pytest.mark.parametrize("most", [1, 3, 20, 50])
def test_it_uses_all_that_is_set_if_the_api_can_process_it(most: int) -> None:
    api = Api(most=most, capacity=1_000)

    api.run(30)

    assert api.values == most


@pytest.mark.parametrize(("processes", "seed"), [(1, 0), (2, 1), (4, 2)])
def test_it_follows_a_capacity_that_falls_to_an_eighth_and_comes_back(processes: int, seed: int) -> None:
    api = Api(processes=processes, capacity=400, latency=0.4, most=500)
    api.random.seed(seed)
    api.run(20)

    api.capacity = 50
    api.run(10)
    assert api.run(20) > 0.95
    assert api.values < 150, "most of the queue is gone"
    api.capacity = 400
    api.run(10)

    assert api.run(10) > 0.85
    assert api.refused == 0


@pytest.mark.parametrize("processes", [1, 4])
def test_refusals_lower_it_to_what_the_api_takes_and_stay_rare(processes: int) -> None:
    api = Api(processes=processes, capacity=200, queue=50, latency=0.4)
    api.run(20)

    api.capacity = 50
    api.run(5)
    share = api.run(20)

    assert share > 0.85
    assert api.refused < 0.05 * api.documents
    assert api.values <= 110


def test_a_wall_of_refusals_without_a_queue_is_found_as_well() -> None:
    api = Api(capacity=100, queue=0, latency=0.2)
    api.run(20)

    share = api.run(60)

    assert share > 0.85
    assert api.refused < 0.05 * api.documents


def test_a_few_refusals_that_come_whatever_is_asked_change_little() -> None:
    api = Api(capacity=100, failing=0.01)
    api.run(15)

    assert api.run(60) > 0.9


def test_timeouts_of_everything_lower_it_by_a_tenth_for_each_round() -> None:
    hand = Hand()
    limit = AdaptiveLimit(100, clock=hand, shared=hand)
    values = []

    for _ in range(4):
        started_at = hand.at
        for _ in range(limit.value):
            limit.record_start()
        hand.at += 30.0
        for _ in range(limit.value):
            limit.record_overload(started_at)
        for _ in range(limit.in_flight):
            limit.record_end()
        values.append(limit.value)

    assert values == [18, 16, 14, 12]


# -- latency ------------------------------------------------------------------------------------------------------


def test_an_api_that_becomes_slower_by_itself_is_asked_for_as_many_as_before() -> None:
    api = Api(capacity=1_000, latency=0.2, most=200)
    api.run(20)

    api.latency = 0.4
    api.run(5)

    assert api.run(20) * 1_000 / 200 > 0.95


def test_a_latency_that_creeps_up_is_no_queue() -> None:
    api = Api(capacity=60, latency=0.2)
    api.run(10)

    shares = []
    for _ in range(20):
        api.latency *= 1.03
        shares.append(api.run(10))

    assert min(shares) > 0.85
    assert sum(shares) / len(shares) > 0.95


def test_under_lasting_load_the_baseline_does_not_drift() -> None:
    api = Api(capacity=60, latency=0.2, spread=0.5)
    api.run(20)

    values = []
    for _ in range(20):
        api.run(10)
        values.append(api.values)

    assert max(values) < 150
    assert sum(values) / len(values) < 85


def test_of_several_processes_one_that_comes_later_gets_its_part_too() -> None:
    api = Api(processes=3, capacity=90, latency=0.2, most=200)
    first, *_ = api.limits
    api._taken[1] = api._taken[2] = 1_000_000  # not yet there
    api.run(20)
    assert first.value > 80
    api._taken[1] = api._taken[2] = 0

    api.run(60)

    assert api.run(20) > 0.95
    assert min(limit.value for limit in api.limits) >= 15
    assert api.values < 200


# -- bounds -------------------------------------------------------------------------------------------------------


def test_a_limit_that_is_not_reached_does_not_grow() -> None:
    hand = Hand()
    limit = AdaptiveLimit(500, clock=hand, shared=hand)

    for _ in range(5_000):
        started_at = hand.at
        limit.record_start()
        hand.at += 0.05
        limit.record_document(started_at, hand.at)

    assert limit.value == 20


def test_after_an_outage_it_begins_with_a_few_again() -> None:
    api = Api(capacity=400)
    api.run(15)
    assert api.values > 300

    api.limits[0].restart()

    assert api.values == 20


@given(
    most=st.integers(1, 300),
    events=st.lists(
        st.tuples(st.sampled_from(["document", "overload", "end", "restart"]), st.floats(0, 40), st.integers(1, 80)),
        max_size=60,
    ),
)
def test_whatever_happens_it_stays_between_one_and_as_many_as_set(
    most: int, events: list[tuple[str, float, int]]
) -> None:
    hand = Hand()
    limit = AdaptiveLimit(most, clock=hand, shared=hand)

    for event, seconds, count in events:
        started_at = hand.at
        for _ in range(count):
            limit.record_start()
        hand.at += seconds
        for _ in range(count):
            match event:
                case "document":
                    limit.record_document(started_at, hand.at)
                case "overload":
                    limit.record_overload(started_at)
                case _:
                    limit.record_end()
        if event == "restart":
            limit.restart()

        assert 1 <= limit.value <= most
        assert limit.in_flight == 0


# -- together with the limit of a throttling API ------------------------------------------------------------------


def limits(most: int) -> tuple[Pace, AdaptiveLimit, Hand]:
    hand = Hand()
    adaptive = AdaptiveLimit(most, clock=hand, shared=hand)
    return Pace(most, gauge(), Pauses(clock=hand, draw=min), adaptive=adaptive, clock=hand), adaptive, hand


def test_the_lower_of_both_limits_holds() -> None:
    pace, adaptive, hand = limits(100)
    assert pace.requests == adaptive.value == 20

    pace.record_throttle(1.0, hand.at)
    assert pace.requests == 4
    for _ in range(50):
        pace.record_success()

    assert pace.requests == 16, "80 % of the requests in flight, not of the setting"


def test_an_outage_restarts_both() -> None:
    pace, _, _ = limits(100)

    pace.restart()
    assert pace.requests == 4
    for _ in range(100):
        pace.record_success()

    assert pace.requests == 20
