"""Rules for responses: the tables that describe them, and the responses that they match."""

import json
import os
import tracemalloc
from typing import Any

import pytest
from multidict import CIMultiDict

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.response_body import ResponseBody
from ingest.domain.fetch.response_rules import ResponseRule, TextPattern, first_match
from ingest.settings import load_settings
from ingest.sources.from_settings import source_of


def rules(*tables: dict[str, Any]) -> tuple[ResponseRule, ...]:
    return source_of(load_settings(responses=json.dumps(tables)), os.environ).endpoint.responses


def matched(rule: dict[str, Any], status: int = 200, body: object = None, **headers: str) -> bool:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return first_match(rules({"meaning": "outage", **rule}), status, named, ResponseBody(text)) is not None


@pytest.mark.parametrize(
    ("status", "statuses"),
    [
        (202, {202}),
        ("202", {202}),
        ("2xx", {200, 202, 204, 299}),
        ("500-504", {500, 501, 502, 504}),
        ([202, "4XX", "500-501"], {202, 400, 499, 500, 501}),
    ],
)
def test_a_status_is_a_number_a_class_a_range_or_a_list_of_these(status: object, statuses: set[int]) -> None:
    tried = {200, 202, 204, 299, 302, 400, 499, 500, 501, 502, 504, 599}

    assert {each for each in tried if matched({"status": status}, each)} == statuses


THROTTLED = {"errors": [{"message": "x"}, {"message": "Throttled by us", "extensions": {"code": "THROTTLED"}}]}


@pytest.mark.parametrize(
    ("condition", "body", "holds"),
    [
        ({"path": "errors[].extensions.code", "equals": "THROTTLED"}, THROTTLED, True),
        ({"path": "errors[1].extensions.code", "equals": ["A", "THROTTLED"]}, THROTTLED, True),
        ({"path": "errors[0].extensions.code", "equals": "THROTTLED"}, THROTTLED, False),
        ({"path": "errors[].message", "pattern": "throttled*"}, THROTTLED, True),
        ({"path": "errors[].message", "pattern": ["a*", "*BY*"]}, THROTTLED, True),
        ({"path": "errors[].message", "pattern": "throttled"}, THROTTLED, False),
        ({"path": "errors", "present": True}, THROTTLED, True),
        ({"path": "errors", "present": True}, {"errors": None}, False),
        ({"path": "errors", "present": False}, {"errors": None}, True),
        ({"path": "errors", "present": False}, {"data": {}}, True),
        ({"path": "errors[0]", "present": True}, {"errors": []}, False),
        ({"path": "data.order", "null": True}, {"data": {"order": None}}, True),
        # An error of the whole request.
        ({"path": "data.order", "null": True}, {"data": None}, False),
        ({"path": "data.order", "null": True}, {"data": {}}, False),
        ({"path": "data.order", "null": True}, {"data": {"order": {}}}, False),
        ({"path": "data.order", "null": True}, {"data": "order"}, False),
        ({"path": "n", "equals": 1}, {"n": 1}, True),
        ({"path": "n", "equals": 1}, {"n": "1"}, False),
        ({"path": "n", "equals": 1}, {"n": True}, False),
        ({"path": "n", "equals": True}, {"n": {}}, False),
        ({"path": "n", "equals": 1.5}, {"n": 1.5}, True),
        ({"path": "$[0].code", "equals": "x"}, [{"code": "x"}], True),
        ({"path": '"@type"', "equals": "x"}, {"@type": "x"}, True),
        ({"pattern": "*too many requests*"}, b"<p>Too many requests</p>", True),
        ({"pattern": "*too many requests*"}, b"\xff\xfe", False),
    ],
)
def test_a_condition_reads_a_place_in_the_body(condition: dict[str, Any], body: object, *, holds: bool) -> None:
    assert matched({"body": condition}, body=body) is holds


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": ', b'{"a": tru}', b"[" * 100_000, b'{"a": "\xff"}'])
@pytest.mark.parametrize("condition", [{"present": False}, {"present": True}, {"null": True}, {"equals": "x"}])
def test_a_body_that_is_not_json_fits_no_path(body: bytes, condition: dict[str, Any]) -> None:
    """Otherwise an error page would be an order that was deleted."""
    assert not matched({"body": {"path": "a", **condition}}, body=body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[%b1]}' % (b"1," * 2_000_000),
        b'{"a":[%b{}]}' % (b"{}," * 1_000_000),
        b"{%b}" % b",".join(b'"%d":1' % number for number in range(400_000)),
        b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    ],
    ids=["a list of numbers", "a list of objects", "many members", "deep"],
)
def test_a_large_body_takes_little_memory(body: bytes) -> None:
    rule = rules({"meaning": "outage", "body": {"path": "a[].b", "equals": 1}})
    tracemalloc.start()

    found = first_match(rule, 200, {}, ResponseBody(body))

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is None
    assert most < 2 * len(body) + 1_000_000


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"name": "x-error", "equals": "7"}, True),
        ({"name": "X-Error", "equals": 7}, True),
        ({"name": "X-Error", "equals": ["6", 8]}, False),
        ({"name": "X-Error", "present": True}, True),
        ({"name": "X-Other", "present": False}, True),
        ({"name": "X-Other", "pattern": "*"}, False),
        ({"name": "Content-Type", "pattern": "TEXT/HTML*"}, True),
    ],
)
def test_a_condition_reads_a_header(condition: dict[str, Any], *, holds: bool) -> None:
    assert matched({"header": condition}, X_Error=" 7 ", Content_Type="text/html; charset=utf-8") is holds


def test_all_conditions_of_a_rule_have_to_hold_and_the_first_rule_decides() -> None:
    pending = {"status": 202, "body": [{"path": "a", "equals": 1}, {"path": "b", "present": False}]}
    found = [
        first_match(
            rules({"meaning": "retry", **pending}, {"meaning": "outage", "status": "2xx"}),
            status,
            {},
            ResponseBody(json.dumps(body).encode()),
        )
        for status, body in [(202, {"a": 1}), (202, {"a": 1, "b": 0}), (200, {"a": 1}), (404, {})]
    ]

    assert [None if rule is None else rule.name for rule in found] == [
        "responses[0]",
        "responses[1]",
        "responses[1]",
        None,
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a*b*c", "axbxc", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("*a", "ba", True),
        ("a.c", "abc", False),
        ("a*" * 30 + "b", "a" * 60_000, False),
    ],
)
def test_an_asterisk_stands_for_any_characters(pattern: str, text: str, *, fits: bool) -> None:
    assert TextPattern.of(pattern).matches(text) is fits


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"status": 404}, "[1]: needs the key `meaning`"),
        ({"meaning": "skip", "status": 404}, "[1].meaning: must be one of retry, throttled"),
        ({"meaning": "retry"}, "[1]: needs a condition"),
        ({"meaning": "retry", "status": 404, "dealy": 1}, "[1].dealy: unknown key `dealy`; did you mean `delay`?"),
        ({"meaning": "retry", "status": "1xx"}, "[1].status: '1xx' is not a status"),
        ({"meaning": "retry", "status": "504-500"}, "[1].status: '504-500' is not a status"),
        ({"meaning": "retry", "status": 99}, "[1].status: 99 is not a status"),
        ({"meaning": "retry", "body": {"path": "a b", "equals": 1}}, "[1].body.path: 'a b' is not a path"),
        ({"meaning": "retry", "body": {"path": '"a\\b"', "equals": 1}}, "[1].body.path: '\"a\\\\b\"' contains a key"),
        ({"meaning": "retry", "body": [{"path": "a"}]}, "[1].body[0]: needs a condition"),
        ({"meaning": "retry", "body": {"equals": 1}}, "[1].body: needs the key `path`"),
        ({"meaning": "retry", "body": {"path": "a", "null": True, "equals": 1}}, "[1].body: contains conditions that"),
        ({"meaning": "retry", "header": {"name": "a b", "equals": "c"}}, "[1].header.name: must be the name"),
        ({"meaning": "outage", "status": 404, "delay": 1}, "[1].delay: only retry and throttled"),
        ({"meaning": "retry", "status": 404, "delay": "5 minutes"}, "[1].delay: write seconds"),
        ({"meaning": "retry", "status": 404, "delay": "60d"}, "[1].delay: must be more than 0"),
        ({"meaning": "retry", "status": 404, "delay_unit": "seconds"}, "[1].delay_unit: needs"),
        ({"meaning": "retry", "status": 404, "delay_path": "a", "delay_header": "b"}, "[1].delay_header: set together"),
    ],
)
def test_a_mistake_is_reported_with_its_place(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        rules({"meaning": "retry", "status": 202}, rule)

    assert str(error.value).startswith(f"INGEST_RESPONSES: {problem}")


@pytest.mark.parametrize("text", ["202", "{}", "[202]", "[", "null"])
def test_anything_but_an_array_of_tables_is_reported(text: str) -> None:
    with pytest.raises(ConfigError, match="INGEST_RESPONSES: must be a JSON array of objects"):
        load_settings(responses=text)
