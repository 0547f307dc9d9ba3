"""Compares the cost of making an order with 20 fields from foreign JSON with a mapping and with only JMESPath.

JMESPath finds the same values, but does not convert or check them. Everything runs in this process, and the ways take
turns, so that a disturbance affects all of them.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import jmespath
import msgspec

from ingest.bench.report import Column, Findings, Row, Table
from ingest.domain.orders.order import decode_order
from ingest.mapping.load import compile_mapping

ORDER_ID = "450789469"

MAPPING = """
[order]
id = "id"
status = "state.name"
placed_at = "created_at"
updated_at = "updated_at"
currency = "total.currency"
customer_id = "customer.id"
country = "delivery.address.country"

[[lines]]
from = "items"
sku = "article.sku"
description = "title"
quantity = "quantity"
unit_price = "price"

[attributes]
channel = "channel"
total = { path = "total.amount", type = "decimal" }
note = "note"
paid_at = { path = "paid_at", type = "timestamp" }
tags = "tags"
"""

EXPRESSIONS = (
    *("id", "state.name", "created_at", "updated_at", "total.currency", "customer.id", "delivery.address.country"),
    *(f"items[{line}].{name}" for line in (0, 1) for name in ("article.sku", "title", "quantity", "price")),
    *("channel", "total.amount", "note", "paid_at", "tags"),
)
"""The same 20 values."""

DOCUMENT = msgspec.json.encode(
    {
        "id": int(ORDER_ID),
        "state": {"name": "paid"},
        "created_at": "2025-01-23T23:10:16-05:00",
        "updated_at": "2025-01-23T23:12:00-05:00",
        "total": {"amount": "12.30", "currency": "EUR"},
        "customer": {"id": 207119551},
        "delivery": {"address": {"country": "DE"}},
        "items": [
            {"article": {"sku": "85123A"}, "title": "White hanging heart", "quantity": 1, "price": "3.50"},
            {"article": {"sku": "71053"}, "title": "White metal lantern", "quantity": 2, "price": "4.40"},
        ],
        "channel": "web",
        "note": "Leave at the door",
        "paid_at": "2025-01-23T23:10:20-05:00",
        "tags": ["gift", "first order"],
    }
)

# Orders in one turn, which is long enough to be timed, and short enough for some turns to be undisturbed.
_TURN = 50

Way = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Plan:
    """The duration of the measurement.

    Attributes:
        turns: turns of each way, with 50 orders each.
    """

    turns: int


def ways() -> dict[str, Way]:
    """The compared ways by name, each of which handles one document."""
    mapping = compile_mapping(MAPPING)
    decode = msgspec.json.Decoder().decode
    searches = [jmespath.compile(expression).search for expression in EXPRESSIONS]
    own = _own_document()

    def by_jmespath() -> object:
        document = decode(DOCUMENT)
        return [search(document) for search in searches]

    return {
        "mapping": lambda: mapping.decode(DOCUMENT, ORDER_ID),
        "JMESPath alone": by_jmespath,
        "our own document": lambda: decode_order(own, ORDER_ID),
        "JSON alone": lambda: decode(DOCUMENT),
    }


def _own_document() -> bytes:
    order = compile_mapping(MAPPING).decode(DOCUMENT, ORDER_ID)
    return msgspec.json.encode(order)


def run(plan: Plan) -> Findings:
    """Run the comparison."""
    measured = measure(ways(), plan.turns)
    rows: list[Row] = [
        {"way": name, "median_us": median(times), "best_us": min(times), "orders_per_second": 1e6 / median(times)}
        for name, times in measured.items()
    ]
    columns = (
        Column("way", "way"),
        Column("median_us", "median (µs)", 1),
        Column("best_us", "best (µs)", 1),
        Column("orders_per_second", "orders/s of one core"),
    )
    return Findings(
        name="mapping",
        settings=asdict(plan),
        tables=[Table("", columns, rows)],
        charts=[],
        notes=(
            f"The order has 20 fields, with two lines and five attributes, in a document of {len(DOCUMENT)} bytes.",
            "JMESPath alone finds the same 20 values, but does not convert or check them.",
            f"Times are CPU times, which other processes do not prolong. Each is the mean of a turn of {_TURN} orders.",
        ),
        runs=rows,
    )


def measure(compared: dict[str, Way], turns: int) -> dict[str, list[float]]:
    """The times of each way in microseconds per order, one for each turn."""
    times: dict[str, list[float]] = {name: [] for name in compared}
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for name, way in compared.items():
                started = time.process_time()
                for _ in range(_TURN):
                    way()
                times[name].append((time.process_time() - started) / _TURN * 1e6)
    finally:
        gc.enable()
    return times
