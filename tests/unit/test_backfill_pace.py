"""How many backfilled orders may be in the main lane, on a clock of the test."""

from dataclasses import dataclass

from ingest.operations.backfill.pace import BackfillPace


@dataclass(slots=True)
class Lane:
    """A lane whose workers finish orders at a rate, in batches."""

    rate: float
    every: float
    now: float = 0.0
    occupied: float = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, pace: BackfillPace, seconds: float, look_every: float = 0.25) -> tuple[int, int]:
        """Fill the lane for a while. Returns how many orders were enqueued, and the most that were in the lane later on."""
        enqueued = most = 0
        begun, batch_at = self.now, self.now + self.every
        while self.now < begun + seconds:
            if self.now >= batch_at:
                self.occupied = max(0.0, self.occupied - self.rate * self.every)
                batch_at += self.every
            if granted := pace.granted(int(self.occupied)):
                pace.note(granted)
                self.occupied += granted
                enqueued += granted
            if self.now > begun + seconds / 2:
                most = max(most, int(self.occupied))
            self.now += look_every
        return enqueued, most


def test_a_live_order_waits_about_two_seconds_behind_a_backfill_whatever_the_speed_of_the_workers() -> None:
    for rate, every in ((2.0, 0.5), (40.0, 0.25), (400.0, 0.75)):
        lane = Lane(rate, every)
        pace = BackfillPace(None, lane)

        enqueued, most = lane.run(pace, 60.0)

        assert enqueued >= 0.85 * rate * 60.0, "the workers are not kept busy"
        assert most <= max(10.0, 3.0 * rate), "a live order would wait too long"


def test_nothing_is_enqueued_while_live_orders_fill_the_lane() -> None:
    pace = BackfillPace(None, Lane(100.0, 0.25))

    assert pace.granted(5_000) == 0
    assert pace.granted(4_000) == 0


def test_a_rate_limits_the_orders_of_each_second() -> None:
    lane = Lane(1_000.0, 0.25)
    pace = BackfillPace(5.0, lane)

    enqueued, _ = lane.run(pace, 20.0)

    assert 95 <= enqueued <= 106


def test_a_rate_of_less_than_one_order_per_second_is_kept() -> None:
    lane = Lane(1_000.0, 0.25)

    enqueued, _ = lane.run(BackfillPace(0.1, lane), 100.0)

    assert 10 <= enqueued <= 11
