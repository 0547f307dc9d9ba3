"""The examples of sources that users copy can be used as they are, but for their secrets."""

import json
import re
from pathlib import Path

import pytest
import webhook_requests as made
from webhook_requests import NOW, SECRET, STANDARD_SECRET

from ingest.api.webhooks.load import compile_webhooks
from ingest.api.webhooks.reception import read_webhook
from ingest.api.webhooks.webhook import Webhook

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "webhooks" / "webhooks.toml"
PAGE = (ROOT / "docs" / "enqueue" / "webhooks.md").read_text(encoding="utf-8")
ON_THE_PAGE = [
    # In the sources file, the table of a webhook has the same keys.
    re.sub(r"^ {3}", "", block, flags=re.MULTILINE).replace(".webhook]", "]")
    for block in re.findall(r"^ *```toml\n(.*?)^ *```", PAGE, re.DOTALL | re.MULTILINE)
]


def compiled(text: str, folder: Path) -> dict[str, Webhook]:
    for name in re.findall(r'"/run/secrets/([a-z-]+)"', text):
        (folder / name).write_text(STANDARD_SECRET if name == "standard" else SECRET)
    return {source.name: source for source in compile_webhooks(text.replace("/run/secrets/", ""), folder)}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Webhook]:
    return compiled(FILE.read_text(encoding="utf-8"), tmp_path)


def announced(source: Webhook, document: dict[str, object], headers: dict[str, str]) -> tuple[str, bool]:
    """The order, and whether it is pushed."""
    body = json.dumps(document).encode()
    found = read_webhook(source, made.headers(headers), body, NOW)
    assert found is not None
    return found.announcements[0].order_id, found.announcements[0].document is not None


def test_each_example_takes_what_its_service_sends(sources: dict[str, Webhook]) -> None:
    order: dict[str, object] = {"id": 450789469}
    refund: dict[str, object] = {"id": 5, "order_id": 450789469}
    event: dict[str, object] = {"type": "order.created", "data": {"id": "A-1"}}
    session: dict[str, object] = {
        "id": "evt_1",
        "type": "checkout.session.completed",
        "data": {"object": {"metadata": {"order_id": "A-1"}}},
    }
    thin: dict[str, object] = {"scope": "store/order/updated", "data": {"type": "order", "id": 250}}
    parcel: dict[str, object] = {"order": {"id": "A-1"}}
    signature = made.digest(SECRET.encode(), f"{NOW:.0f}.".encode() + json.dumps(parcel).encode()).hex()

    def raw(document: dict[str, object]) -> bytes:
        return json.dumps(document).encode()

    found = [
        announced(sources["shopify"], order, made.shopify(raw(order))),
        announced(sources["shopify-refunds"], refund, made.shopify(raw(refund), topic="refunds/create")),
        announced(sources["woocommerce"], order, made.woocommerce(raw(order))),
        announced(sources["bigcommerce"], thin, made.bigcommerce(raw(thin))),
        announced(sources["stripe"], session, made.stripe(raw(session))),
        announced(sources["standard"], event, made.standard(raw(event))),
        announced(
            sources["warehouse"],
            parcel,
            {"X-Event": "order.packed", "X-Timestamp": f"{NOW:.0f}", "X-Signature-256": f"sha256={signature}"},
        ),
    ]

    assert found == [
        ("450789469", False),
        ("450789469", False),
        ("450789469", True),
        ("250", False),
        ("A-1", False),
        ("A-1", False),
        ("A-1", False),
    ]
    assert len(sources) == len(found)


@pytest.mark.parametrize("block", [block for block in ON_THE_PAGE if "[sources" in block])
def test_each_source_on_the_page_can_be_used(tmp_path: Path, block: str) -> None:
    assert len(compiled(block, tmp_path)) == 1


def test_the_page_has_a_source_of_each_profile() -> None:
    assert set(re.findall(r'profile = "([a-z]+)"', "\n".join(ON_THE_PAGE))) == {
        "shopify",
        "woocommerce",
        "bigcommerce",
        "stripe",
        "standard",
        "hmac",
    }
