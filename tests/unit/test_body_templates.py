"""An order ID in the body of a request: whatever it contains, it stays one value."""

import json
from urllib.parse import parse_qsl
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from odd_ids import order_ids

from ingest.upstream.body_template import BodyTemplate

JSON = "application/json"


def filled(template: str, order_id: str, media_type: str = JSON) -> str:
    return BodyTemplate(template, media_type).filled(order_id).decode()


@given(order_ids)
def test_in_a_json_string_it_is_the_id(order_id: str) -> None:
    template = '{"a": ["\\\\", "{order_id}"], "{order_id}": "order {order_id}!"}'

    assert json.loads(filled(template, order_id)) == {"a": ["\\", order_id], order_id: f"order {order_id}!"}


@given(order_ids)
def test_in_a_string_of_graphql_within_json_it_is_the_id(order_id: str) -> None:
    body = filled(
        r'{"query": "{ order(id: \"{order_id}\", of: \"x\") { id } }", "variables": {"id": "{order_id}"}}', order_id
    )

    sent = json.loads(body)
    assert sent["variables"] == {"id": order_id}
    written = sent["query"].removeprefix("{ order(id: ").removesuffix(', of: "x") { id } }')
    # GraphQL's strings use the escapes of JSON.
    assert json.loads(written) == order_id


@given(order_ids)
def test_outside_of_strings_it_is_one_json_value(order_id: str) -> None:
    value = json.loads(filled('{"id": {order_id}}', order_id))["id"]

    assert str(value) == order_id
    assert isinstance(value, int) == (order_id.isascii() and order_id.isdigit() and str(int(order_id)) == order_id)


@given(order_ids)
def test_in_a_form_it_is_one_field(order_id: str) -> None:
    body = filled("a=1&id={order_id}", order_id, "application/x-www-form-urlencoded")

    assert parse_qsl(body) == [("a", "1"), ("id", order_id)]


@given(order_ids)
def test_in_xml_it_is_a_text_or_an_attribute(order_id: str) -> None:
    order = ET.fromstring(filled("<a id='{order_id}'>{order_id}</a>", order_id, "text/xml"))

    assert (order.text, order.attrib) == (order_id, {"id": order_id})


@pytest.mark.parametrize(
    ("template", "media_type", "body"),
    [
        ("id={order_id}", JSON, 'id=A"1'),
        ("{order_id}", "text/plain", 'A"1'),
        ('{order(id: "{order_id}") {id}}', "application/graphql", '{order(id: "A\\"1") {id}}'),
        ("{order(id: {order_id}) {id}}", "application/graphql", '{order(id: A"1) {id}}'),
        ("{}", JSON, "{}"),
    ],
)
def test_in_other_bodies_it_is_unchanged_outside_of_strings(template: str, media_type: str, body: str) -> None:
    assert filled(template, 'A"1', media_type) == body
