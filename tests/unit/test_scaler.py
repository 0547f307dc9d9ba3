"""The rehearsal of autoscaling decides as KEDA and the autoscaler do, by the manifest that is deployed."""

from rehearsals.scale.manifest import limits_of_worker, rules
from rehearsals.scale.scaler import SYNC_PERIOD, Scaler, reversals

RULES = rules()


def at_work(replicas: int) -> Scaler:
    return Scaler(RULES, replicas)


def test_it_goes_by_the_manifest() -> None:
    assert "ingest_queue_depth" in RULES.query
    assert (RULES.threshold, RULES.activation, RULES.least, RULES.most) == (200, 0, 0, 10)
    assert (RULES.polling, RULES.cooldown) == (10, 120)
    assert limits_of_worker().cpus == 1
    assert limits_of_worker().memory == 512 * 1024 * 1024


def test_one_order_starts_one_worker() -> None:
    scaler = at_work(0)

    scaler.poll(0, 1)

    assert scaler.replicas == 1


def test_the_autoscaler_leaves_a_queue_without_workers_alone() -> None:
    scaler = at_work(0)

    scaler.sync(0, 10_000)

    assert scaler.replicas == 0


def test_the_last_worker_is_stopped_after_the_cooldown() -> None:
    scaler = at_work(1)
    scaler.poll(0, 1)

    scaler.poll(RULES.cooldown, 0)
    assert scaler.replicas == 1

    scaler.poll(RULES.cooldown + 1, 0)
    assert scaler.replicas == 0


def test_it_grows_by_four_or_to_twice_as_many_in_each_period() -> None:
    scaler = at_work(1)
    numbers = []

    for period in range(3):
        scaler.sync(period * SYNC_PERIOD, 100_000)
        numbers.append(scaler.replicas)

    assert numbers == [5, 10, 10]


def test_a_difference_within_the_tolerance_changes_nothing() -> None:
    scaler = at_work(5)

    scaler.sync(0, 5 * RULES.threshold * 1.09)

    assert scaler.replicas == 5


def test_it_shrinks_only_when_less_was_wanted_for_the_whole_window() -> None:
    scaler = at_work(10)
    scaler.sync(0, 2000)

    for moment in range(15, 301, 15):
        scaler.sync(moment - 0.1, 100)
        assert scaler.replicas == 10

    scaler.sync(300.5, 100)
    assert scaler.replicas == 7


def test_it_shrinks_by_a_quarter_in_a_minute() -> None:
    scaler = at_work(10)
    numbers = []

    for period in range(60):
        scaler.sync(period * SYNC_PERIOD, 1)
        numbers.append(scaler.replicas)

    assert numbers[19:25] == [10, 7, 7, 7, 7, 5]
    assert numbers[-1] == 1


def test_changes_of_direction_are_counted() -> None:
    assert reversals([1, 4, 5, -10, 1, -1]) == 3
    assert reversals([1, 4]) == 0
