"""Which orders are traced, which all processes decide alike."""

import pytest

from ingest.domain.partitions import partition_of
from ingest.telemetry.tracing.sampling import OrderSampling

ORDERS = [f"SO/2026/{number}" for number in range(20_000)]


def taken(share: float) -> set[str]:
    takes = OrderSampling(share).takes
    return {order_id for order_id in ORDERS if takes(order_id)}


@pytest.mark.parametrize(
    ("share", "least", "most"), [(0.0, 0, 0), (0.01, 140, 260), (0.5, 9_500, 10_500), (1.0, 20_000, 20_000)]
)
def test_a_share_of_the_orders_is_taken(share: float, least: int, most: int) -> None:
    assert least <= len(taken(share)) <= most


def test_a_process_with_a_larger_share_takes_the_orders_of_a_smaller_one_as_well() -> None:
    assert taken(0.01) < taken(0.1) < taken(0.5)


def test_the_orders_that_are_taken_are_in_all_partitions() -> None:
    assert {partition_of(order_id, 8) for order_id in taken(0.01)} == set(range(8))
