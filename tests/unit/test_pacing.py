"""How long a process pauses for an API that throttles, and what several of them make of one quota."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from fakes.workers import gauge
from unit.evidence import Hand

from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses


def pacing(hand: Hand, *, high: bool = False) -> Pauses:
    return Pauses(clock=hand, draw=lambda least, most: most if high else least)


def refuse(paced: Pauses, told: float | None) -> float:
    """A refusal of a request that was sent after the last."""
    paced.count_throttle()
    return paced.record_throttle(told)


# -- the pause for all --------------------------------------------------------------------------------------------


def test_without_a_refusal_nothing_is_paced() -> None:
    paced = pacing(Hand())

    paced.record_start()
    paced.record_success()

    assert not paced.is_on


@pytest.mark.parametrize(("told", "seconds"), [(30.0, 30.0), (2.5, 2.5), (1.0, 1.0), (86_400.0, 60.0)])
def test_all_wait_as_long_as_the_api_has_asked_for_and_a_minute_at_most(told: float, seconds: float) -> None:
    hand = Hand()
    paced, late = pacing(hand), pacing(hand, high=True)

    refuse(paced, told)
    refuse(late, told)

    assert paced.is_on
    assert paced.delay() == pytest.approx(seconds)
    assert late.delay() == pytest.approx(1.1 * seconds), "those that are told the same do not come back together"
    hand.at += 1.1 * seconds
    assert paced.delay() <= 0


@pytest.mark.parametrize("told", [0.0, None, 0.001])
def test_told_to_wait_for_no_time_at_all_they_wait_for_a_second_and_twice_as_long_each_time(
    told: float | None,
) -> None:
    hand, waits = Hand(), []
    paced = pacing(hand)

    for _ in range(10):
        refuse(paced, told)
        waits.append(paced.delay())
        hand.at += waits[-1]

    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30, 30, 30])


def test_an_answer_makes_the_next_pause_short_again() -> None:
    hand = Hand()
    paced = pacing(hand)
    for _ in range(5):
        refuse(paced, 0.0)
        hand.at += paced.delay()

    paced.record_success()
    refuse(paced, 0.0)

    assert paced.delay() == pytest.approx(1.0)


def test_refusals_of_what_was_in_flight_together_make_one_pause() -> None:
    hand = Hand()
    paced = pacing(hand)
    refuse(paced, 0.0)

    for _ in range(100):
        paced.record_throttle(0.0)

    assert paced.delay() == pytest.approx(1.0)


@pytest.mark.parametrize(("told", "waits"), [(7.0, (7, 7)), (0.0, (1, 2)), (None, (1, 2)), (3_600.0, (3_600, 3_600))])
def test_an_order_waits_as_told_or_for_a_second_or_two(told: float | None, waits: tuple[float, float]) -> None:
    assert (refuse(pacing(Hand()), told), refuse(pacing(Hand(), high=True), told)) == waits


def test_when_all_is_over_nothing_has_to_be_asked_any_more() -> None:
    hand = Hand()
    paced = pacing(hand)
    refuse(paced, 1.0)
    hand.at += 1.0
    paced.record_success()

    assert paced.delay() <= 0
    assert not paced.is_on


# -- the pause between requests -----------------------------------------------------------------------------------


def test_it_begins_as_what_the_api_has_let_through() -> None:
    hand = Hand()
    paced = pacing(hand)
    refuse(paced, 1.0)
    for _ in range(4):
        hand.at += 0.25
        paced.record_success()

    refuse(paced, 1.0)
    paced.slow_down()

    assert paced.interval == pytest.approx(1.5 * 0.25 / 2)
    hand.at += 10
    paced.record_start()
    assert paced.delay() == pytest.approx(0.9 * paced.interval)


def test_it_goes_as_fast_as_ever_when_the_api_takes_everything_again() -> None:
    hand = Hand()
    paced = pacing(hand)
    for _ in range(100):
        hand.at += 5
        paced.record_success()
        refuse(paced, 1.0)
        paced.slow_down()
    hand.at += 100
    assert paced.interval == 60

    answers = list(itertools.takewhile(lambda _: paced.interval, (paced.record_success() for _ in range(1_000))))

    assert len(answers) < 150
    assert not paced.is_on or paced.delay() <= 0


# -- several processes and one quota ------------------------------------------------------------------------------


@dataclass
class Quota:
    """An API that accepts `rate` requests per second, including the requests of one second in a burst."""

    rate: float
    tokens: float = 0.0
    filled_at: float = 0.0

    def lets_through(self, now: float) -> bool:
        self.tokens = min(max(1.0, self.rate), self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(eq=False)
class Process:
    """A process that sends requests as often as it may, because there is always another order."""

    pacing: Pauses
    pace: Pace
    in_flight: int = 0


@dataclass
class Fleet:
    """Processes with a backlog, and an API, in simulated time."""

    quota: Quota
    latency: float
    told: float | None
    random: Random
    hand: Hand = field(default_factory=lambda: Hand(0.0))
    answers: list[tuple[float, bool]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _number: "itertools.count[int]" = field(default_factory=itertools.count)

    def run(self, processes: int, concurrency: int, until: float) -> None:
        for _ in range(processes):
            pacing = Pauses(clock=self.hand, draw=self.random.uniform)
            process = Process(pacing, Pace(concurrency, gauge(), pacing, clock=self.hand))
            self._at(self.random.random() / 100, lambda process=process: self._ask(process))
        while self._events and self._events[0][0] <= until:
            self.hand.at, _, happens = heapq.heappop(self._events)
            happens()

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._number), happens))

    def _ask(self, process: Process) -> None:
        while process.in_flight < process.pace.requests:
            if process.pacing.is_on and (wait := process.pacing.delay()) > 0:
                self._at(self.hand.at + wait, lambda: self._ask(process))
                return
            process.pacing.record_start()
            process.in_flight += 1
            is_let, asked_at = self.quota.lets_through(self.hand.at), self.hand.at
            takes = self.latency * self.random.uniform(0.9, 1.1) if is_let else 0.002
            self._at(asked_at + takes, lambda is_let=is_let, at=asked_at: self._end(process, at, is_let=is_let))

    def _end(self, process: Process, asked_at: float, *, is_let: bool) -> None:
        process.in_flight -= 1
        self.answers.append((self.hand.at, is_let))
        if is_let:
            process.pace.record_success()
        else:
            process.pace.record_throttle(self.told, asked_at)
        self._ask(process)


@pytest.mark.parametrize("told", [0.0, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("rate", "processes", "latency"),
    [(2, 4, 0.05), (2, 1, 0.3), (20, 4, 0.05), (20, 4, 1.0), (100, 4, 0.05)],
)
def test_processes_that_share_a_quota_come_near_to_it_and_few_requests_are_refused(
    rate: float, processes: int, latency: float, told: float | None, seed: int
) -> None:
    fleet = Fleet(Quota(rate), latency, told, Random(seed))

    fleet.run(processes, 100, until=300)

    settled = [is_let for time, is_let in fleet.answers if time > 60]
    assert settled.count(False) < 0.2 * len(settled)
    assert settled.count(True) > 0.75 * rate * 240
    assert [is_let for time, is_let in fleet.answers if time <= 60].count(False) < 180 * processes


def test_an_api_that_refuses_everything_is_asked_twice_a_minute() -> None:
    fleet = Fleet(Quota(0.0), 0.05, 0.0, Random(1))

    fleet.run(4, 50, until=600)

    late = [time for time, _ in fleet.answers if time > 60]
    assert len(late) <= 4 * 20
