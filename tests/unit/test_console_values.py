"""The values and charts of the console's pages."""

from datetime import UTC, datetime

import pytest

from ingest.api.console.charts import charts_of
from ingest.api.console.templating import amount, labelled
from ingest.operations.state.history import BARS, Bar, bars_of
from ingest.queue.operate.minute_counts import Count

NOW = datetime(2026, 1, 31, 8, 0, 30, tzinfo=UTC)
LAST = int(NOW.timestamp()) // 60


@pytest.mark.parametrize(
    ("value", "currency", "shown"),
    [
        ("7.5", "EUR", "7.50"),
        ("7", "eur", "7.00"),
        ("-7.255", "EUR", "-7.255"),
        ("700", "JPY", "700"),
        ("700.5", "JPY", "700.5"),
        ("7.5", "BHD", "7.500"),
        ("0", "", "0.00"),
    ],
)
def test_an_amount_has_the_decimal_places_of_its_currency_and_loses_none(value: str, currency: str, shown: str) -> None:
    assert amount(value, currency) == shown


def test_orders_have_arrived_that_left_the_queue_or_made_it_grow() -> None:
    counts = {
        LAST - 1: {Count.IN_QUEUE: 5, Count.OLDEST: 9},
        LAST: {Count.IN_QUEUE: 3, Count.OLDEST: 4, Count.STORED: 6, Count.FAILED: 2, Count.ENDED: 7},
    }

    minutes, day = bars_of(counts, LAST, 1), bars_of(counts, LAST, 24)

    assert minutes[-2:] == [Bar(None, 0, 0, 9), Bar(5, 6, 2, 4)]
    assert set(minutes[:-2]) == {Bar()}
    assert (len(day), day[-1]) == (BARS, Bar(5, 6, 2, 9))


def test_a_chart_names_its_highest_bar_and_the_unknown_time() -> None:
    bars = [*[Bar()] * 40, *[Bar(stored=1, oldest=0)] * 19, Bar(stored=1200, oldest=180)]

    charts = charts_of(bars, 1, NOW)

    assert charts["stored"].total == 1219
    assert charts["stored"].text == "Highest in a minute: 1,200 at 08:00. Unknown for 40 min."
    assert charts["oldest"].text == "Highest in a minute: 3 min at 08:00. Unknown for 40 min."
    assert (charts["arrived"].text, charts["arrived"].total) == ("Not known yet.", None)
    assert charts_of([], 1, NOW)["stored"].text == "Not known yet."


def test_each_cell_of_a_table_names_its_column() -> None:
    rows = (
        '<tr data-key="a"><th scope="row">a</th><td>1</td></tr>\n<tr><th>b</th><td class="number">&lt;td&gt;</td></tr>'
    )

    shown = labelled(rows, ["A & B", ("Count", "number")])

    assert shown.count('data-label="A &amp; B"') == shown.count('data-label="Count"') == 2
    assert '<td data-label="Count" class="number">&lt;td&gt;</td>' in shown
