"""Filters and selections that a job records are the same when it is resumed, and reports name what differs."""

from datetime import UTC, datetime

from ingest.domain.capacity.source_demand import SourceDemand, share_of, total_of
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import Selection
from ingest.domain.fetch.list_gaps import ListGaps
from ingest.domain.operating.selection_json import recorded_selection, selection_as_dict
from ingest.domain.orders.list_reconciliation import Difference, DifferenceKind, ListReconciliation
from ingest.domain.orders.order_filter import OrderFilter, order_filter_of
from ingest.domain.orders.reconciliation import ListedOrders, ReconciliationReport

NOON = datetime(2026, 1, 30, 12, tzinfo=UTC)


def test_a_filter_of_orders_survives_its_record() -> None:
    chosen = OrderFilter(status="placed", stored_from=NOON, attributes=(("gift", "true"),), ids=("A", "B"))

    recorded = chosen.as_object()

    assert recorded == {
        "status": "placed",
        "stored_from": "2026-01-30T12:00:00Z",
        "attributes": [["gift", "true"]],
        "ids": ["A", "B"],
    }
    assert order_filter_of(recorded) == chosen
    assert (chosen.is_by_time, chosen.is_everything, order_filter_of({}).is_everything) == (True, False, True)


def test_a_selection_of_entries_survives_its_record() -> None:
    chosen = EntryFilter("currency", "HTTP N", {"gift": "true"})
    selection = Selection(frozenset({"A"}), frozenset({"rejected"}), NOON, None, False, chosen)

    assert recorded_selection(selection_as_dict(selection)) == selection


def report(*, lost: ListedOrders, waiting: int = 0, unconfirmed: int = 0) -> ReconciliationReport:
    none = ListedOrders()
    return ReconciliationReport(
        accepted=3, stored=1, dead=1, both=0, erased=0, queued=0, lost=lost, unconfirmed=unconfirmed, arrived=0,
        waiting=waiting, pending=0, retrying=0, dead_letters={" \n": 1}, compared=1, wrong=none, unexpected=none,
    )  # fmt: skip


def test_a_reconciliation_names_lost_orders_and_whether_it_is_final() -> None:
    lost = report(lost=ListedOrders(2, ("A",)), unconfirmed=1)

    assert not lost.is_clean
    assert lost.is_settled
    assert "A and 1 more" in str(lost)
    assert str(lost).endswith("NOT CLEAN")
    assert "without a reason 1" in str(lost)
    assert str(report(lost=ListedOrders(), waiting=2)).endswith("clean, so far")
    assert lost.as_dict()["clean"] is False


def test_a_comparison_with_the_list_counts_each_kind_of_difference() -> None:
    none = ListedOrders()
    found = ListReconciliation(
        since=NOON, until=NOON, listed=2, stored=1, queued=0, dead=0, erased=0, gaps=ListGaps(unusable=1),
        missing=ListedOrders(1, ("A",)), outdated=none, total=none, equal=1, not_compared=none, unexpected=none, unread_amounts=2,
    )  # fmt: skip

    assert found.differences[DifferenceKind.MISSING] == 1
    assert not found.is_clean
    assert "2 with an unreadable total" in str(found)
    assert "NOT PROVEN      1 element that cannot be used" in str(found)
    assert str(found).endswith("NOT CLEAN")
    assert found.as_dict()["clean"] is False
    assert Difference("A", DifferenceKind.MISSING, NOON).as_dict()["difference"] == "missing"


def test_the_demands_of_sources_add_up_and_each_gets_its_share() -> None:
    slow, fast = SourceDemand(10.0, 1.0), SourceDemand(30.0, 0.2)

    total = total_of([slow, fast])

    assert (total.rate, round(total.latency, 3)) == (40.0, 0.4)
    assert share_of(slow, 2).concurrency >= 5
