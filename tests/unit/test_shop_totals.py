"""The lines of generated orders of each kind of shop add up to the total, and differences are exactly those that were made.

`INGEST_TEST_DOCUMENTS` sets the number of documents of each kind, and prints how many were equal or different, with the reason:

    INGEST_TEST_DOCUMENTS=2000 pytest -s -p no:randomly tests/unit/test_shop_totals.py
"""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from shop_documents.amazon import amazon_orders
from shop_documents.amazon_v0 import amazon_v0_orders
from shop_documents.bigcommerce import bigcommerce_orders
from shop_documents.generated import Generated
from shop_documents.magento import magento_orders
from shop_documents.shopify import shopify_orders
from shop_documents.shopify_rest import shopify_rest_orders
from shop_documents.woocommerce import woocommerce_orders

from ingest.mapping.load import load_mapping

# In a quick run as well, enough for the share of equal totals.
DOCUMENTS = int(os.environ.get("INGEST_TEST_DOCUMENTS", max(50, settings.default.max_examples)))
KINDS: dict[str, st.SearchStrategy[Generated]] = {
    "amazon": amazon_v0_orders(),
    "amazon-2026-01-01": amazon_orders(),
    "bigcommerce": bigcommerce_orders(),
    "magento": magento_orders(),
    "shopify-graphql": shopify_orders(),
    "shopify-rest": shopify_rest_orders(),
    "woocommerce": woocommerce_orders(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_lines_add_up_to_the_total_except_for_the_differences_that_were_made(kind: str) -> None:
    mapping, results = load_mapping(kind), Counter[str]()

    @settings(
        max_examples=DOCUMENTS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )
    @given(KINDS[kind])
    def check(generated: Generated) -> None:
        mapped = mapping.read(generated.encoded(), None)

        assert mapped.omitted == []
        if generated.total is None:
            results["without a total"] += 1
            assert mapped.total_difference is None
        elif not generated.difference:
            results["equal"] += 1
            assert mapped.total_difference is None
            assert mapped.order.total == generated.total
        else:
            results[f"different: {generated.reason}"] += 1
            assert mapped.total_difference is not None
            assert mapped.order.total == generated.total
            assert mapped.order.lines[-1].sku == "DIFFERENCE"
            assert str(generated.difference) == mapped.total_difference

    check()

    print(  # noqa: T201  the figures of a long run
        f"\n{kind}: {results.total()} documents:", ", ".join(f"{count} {name}" for name, count in results.most_common())
    )
    assert results["equal"] > results.total() / 5
