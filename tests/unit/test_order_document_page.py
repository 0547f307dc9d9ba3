"""The service accepts the document on docs/reference/order-document.md."""

import re
from decimal import Decimal
from pathlib import Path

from ingest.domain.orders.order import decode_order

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "order-document.md"


def test_the_document_on_the_page_is_an_order() -> None:
    (document,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    order = decode_order(document.encode(), "536365")

    assert (order.currency, order.lines[0].unit_price, order.total) == ("GBP", Decimal("2.55"), Decimal("15.30"))
