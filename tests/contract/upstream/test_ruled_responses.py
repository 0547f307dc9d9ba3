"""Responses whose meaning the operator has declared, by each transport."""

import asyncio
import gzip
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from raw_http import DOCUMENT, IMPATIENT, LIMITS, ORDER, Connect, answering, http, secret, serving
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, PostponedFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.response_rules import ResponseRule
from ingest.domain.fetch.result import Failed, Fetched
from ingest.settings import load_settings
from ingest.sources.response_rules import response_rules_of
from ingest.upstream.access.endpoint import Access, OAuth2
from ingest.upstream.client import transport_opener
from ingest.upstream.http.transport import Kind, NoDocument, Options

CODE = "errors[].extensions.code"
RULES = [
    {"status": 202, "meaning": "retry", "delay": "30s"},
    {"body": {"path": CODE, "equals": "THROTTLED"}, "meaning": "throttled", "delay_path": "wait", "delay": 7},
    {"body": {"path": CODE, "equals": "ACCESS_DENIED"}, "meaning": "credential"},
    {"body": {"path": CODE, "equals": "INTERNAL"}, "meaning": "outage"},
    {"body": [{"path": "data.order", "null": True}, {"path": "errors", "present": False}], "meaning": "not_found"},
    {"status": "4xx", "body": {"path": "code", "equals": 17}, "meaning": "rejected"},
    {"header": {"name": "X-State", "equals": "later"}, "meaning": "retry"},
    {"status": "404-410", "body": {"pattern": "*maintenance*"}, "meaning": "outage"},
    {"status": 409, "meaning": "rejected", "name": "on hold"},
]


def rules(*tables: Mapping[str, Any]) -> tuple[ResponseRule, ...]:
    return response_rules_of(load_settings(responses=json.dumps(tables)))


async def fault_of(connect: Connect, answer: bytes, *tables: Mapping[str, Any], **more: Any) -> Fault:
    async with answering(answer) as (template, _), connect(template, responses=rules(*tables), **more) as client:
        result = await client.fetch(FetchRequest(ORDER))
    assert isinstance(result, Failed)
    return result.fault


def sized(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return http(body, f"Content-Length: {len(body)}", *headers, status=status)


def graphql(code: str, **more: object) -> bytes:
    return sized(json.dumps({"data": None, "errors": [{"extensions": {"code": code}}], **more}).encode())


@pytest.mark.parametrize(
    ("answer", "fault", "error"),
    [
        (sized(b"", status="202 Accepted"), PostponedFault, "HTTP 202, by the rule responses[0]"),
        (graphql("THROTTLED"), ThrottledFault, "HTTP 200, by the rule responses[1]"),
        (graphql("ACCESS_DENIED"), CredentialFault, "HTTP 200, by the rule responses[2]"),
        (graphql("INTERNAL"), TransientFault, "HTTP 200, by the rule responses[3]"),
        (sized(b'\xef\xbb\xbf{"data":{"order":null}}'), PermanentFault, "HTTP 200, by the rule responses[4]"),
        (sized(b'{"code":17}', status="400 No"), PermanentFault, "HTTP 400, by the rule responses[5]"),
        (sized(b"", "X-State: later", status="204 No Content"), PostponedFault, "HTTP 204, by the rule responses[6]"),
        (sized(b"", "X-State: later", "Location: /", status="302 Found"), PostponedFault, "HTTP 302, by the rule"),
        (sized(b"down for Maintenance", status="404 No"), TransientFault, "HTTP 404, by the rule responses[7]"),
        (
            sized(b'{"message":"Waits for a payment"}', status="409 No"),
            PermanentFault,
            "HTTP 409, by the rule on hold: Waits for a payment",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_a_rule_gives_a_response_its_meaning(
    connect: Connect, answer: bytes, fault: type[Fault], error: str
) -> None:
    found = await fault_of(connect, answer, *RULES)

    assert type(found) is fault
    assert str(found).startswith(error)


@pytest.mark.parametrize("meaning", ["not_found", "rejected"])
async def test_a_rule_about_the_order_needs_no_evidence(connect: Connect, meaning: str) -> None:
    fault = await fault_of(connect, sized(b"{}"), {"status": 200, "meaning": meaning})

    assert isinstance(fault, PermanentFault)
    assert (fault.reason, fault.is_configured) == (DeadReason(meaning), True)


async def test_an_outage_by_a_rule_is_no_order_s_fault(connect: Connect) -> None:
    fault = await fault_of(connect, sized(b"{}"), {"status": 200, "meaning": "outage"})

    assert not fault.reached


DATE = "Date: Sun, 31 Jan 2027 12:00:00 GMT"


@pytest.mark.parametrize(
    ("delay", "answer", "after"),
    [
        ({}, sized(b'{"wait":3}'), None),
        ({}, sized(b'{"wait":3}', "Retry-After: 12"), 12),
        ({}, sized(b'{"wait":3}', DATE, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 9"), 9),
        ({"delay": "2m"}, sized(b'{"wait":3}', "Retry-After: 12"), 120),
        ({"delay_path": "wait"}, sized(b'{"wait":3}', "Retry-After: 12"), 3),
        ({"delay_path": "wait"}, sized(b'{"wait":"3.5"}'), 3.5),
        ({"delay_path": "wait", "delay_unit": "milliseconds"}, sized(b'{"wait":2500}'), 2.5),
        ({"delay_path": "waits[].for"}, sized(b'{"waits":[{},{"for":null},{"for":4}]}'), 4),
        ({"delay_path": "wait", "delay": 5}, sized(b'{"wait":"soon"}'), 5),
        ({"delay_path": "wait", "delay": 5}, sized(b'{"wait":-3}'), 5),
        ({"delay_path": "wait", "delay": 5}, sized(b'{"wait":0}'), 5),
        ({"delay_path": "wait", "delay": 5}, sized(b'{"wait":true}'), 5),
        ({"delay_path": "wait", "delay": 5}, sized(b"<html>"), 5),
        ({"delay_path": "wait"}, sized(b'{"wait":1e300}'), 86_400),
        ({"delay_path": "until"}, sized(b'{"until":1801396845}', DATE), 45),
        ({"delay_path": "until", "delay": 5}, sized(b'{"until":1801396700}', DATE), 5),
        ({"delay_path": "until", "delay_unit": "milliseconds"}, sized(b'{"until":1801396845000}', DATE), 45),
        ({"delay_header": "X-Wait"}, sized(b"{}", "X-Wait: 8"), 8),
        ({"delay_header": "X-Wait", "delay_unit": "milliseconds"}, sized(b"{}", "X-Wait: 8000"), 8),
        ({"delay_header": "X-Wait"}, sized(b"{}", DATE, "X-Wait: Sun, 31 Jan 2027 12:00:20 GMT"), 20),
        ({"delay_header": "X-Wait", "delay": 5}, sized(b"{}", "X-Wait: soon"), 5),
        ({"delay_header": "X-Wait", "delay": 5}, sized(b"{}"), 5),
    ],
    ids=lambda value: str(value)[:70],
)
async def test_the_delay_is_in_the_response_or_in_the_rule(
    connect: Connect, delay: dict[str, Any], answer: bytes, after: float | None
) -> None:
    fault = await fault_of(connect, answer, {"status": 200, "meaning": "throttled", **delay})

    assert isinstance(fault, ThrottledFault)
    assert fault.after == (None if after is None else pytest.approx(after))


@pytest.mark.parametrize(("delay", "after"), [({}, None), ({"delay": "1h"}, 3600), ({"delay_path": "wait"}, 3)])
async def test_a_retry_without_a_delay_has_the_usual_backoff(
    connect: Connect, delay: dict[str, Any], after: float | None
) -> None:
    answer = sized(b'{"wait":3}', "Retry-After: 12")

    fault = await fault_of(connect, answer, {"status": 200, "meaning": "retry", **delay})

    assert isinstance(fault, PostponedFault)
    assert fault.after == after


async def test_a_rule_comes_before_the_meaning_of_a_status(connect: Connect) -> None:
    override = {"statuses": {404: None}}

    fault = await fault_of(connect, sized(b"", status="404 No"), {"status": 404, "meaning": "throttled"}, **override)

    assert isinstance(fault, ThrottledFault)


@pytest.mark.parametrize(
    "answer",
    [
        sized(DOCUMENT),
        sized(b"{}", status="404 No"),
        sized(b"", status="204 No Content"),
        sized(b'{"a":', status="200 OK"),
    ],
    ids=["a document", "404", "204", "truncated"],
)
async def test_without_a_match_a_response_means_the_same_as_without_rules(connect: Connect, answer: bytes) -> None:
    results = []
    for given in (rules(), rules(*RULES), rules({"status": "2xx", "meaning": "document"}, *RULES)):
        async with answering(answer) as (template, _), connect(template, responses=given) as client:
            results.append(await client.fetch(FetchRequest(ORDER)))

    without, unmatched, as_it_is = [
        (type(each), each.body) if isinstance(each, Fetched) else (type(each.fault), str(each.fault))
        for each in results
    ]
    assert without == unmatched == as_it_is


@pytest.mark.each_client
@pytest.mark.parametrize("status", ["400 No", "401 No", "404 No", "500 No"])
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ([], b'{"code":"X"}'),
        (["Content-Encoding: gzip"], gzip.compress(b'{"code":"X"}')),
        (["Content-Encoding: UTF-8"], b'{"code":"X"}'),
    ],
    ids=["plain", "compressed", "with a charset"],
)
async def test_the_body_of_an_error_can_be_read(connect: Connect, status: str, headers: list[str], body: bytes) -> None:
    rule = {"status": "4xx", "body": {"path": "code", "equals": "X"}, "meaning": "retry"}

    fault = await fault_of(connect, sized(body, *headers, status=status), rule, rule | {"status": "5xx"})

    assert isinstance(fault, PostponedFault)


@pytest.mark.each_client
async def test_an_error_s_body_that_arrives_late_is_awaited_only_for_rules(kind: Kind) -> None:
    is_answered = asyncio.Event()

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b'{"a"', "Content-Length: 7", status="500 No"))
        await writer.drain()
        await is_answered.wait()
        writer.write(b":1}")

    async with serving(write) as port:
        url = f"http://127.0.0.1:{port}/"
        async with transport_opener(kind)(Options(LIMITS, False, None)) as transport:
            with pytest.raises(NoDocument) as without:
                await transport.send(url, {})
        async with transport_opener(kind)(Options(LIMITS, False, None, error_body=100)) as transport:
            request = asyncio.create_task(transport.send(url, {}))
            await asyncio.wait([request], timeout=0.1)
            is_early = request.done()
            is_answered.set()
            with pytest.raises(NoDocument) as with_rules:
                await request

    assert not is_early
    assert (without.value.body, with_rules.value.body) == (b"", b'{"a":1}')


@pytest.mark.each_client
@pytest.mark.parametrize("length", [99, 100, 101, 100_000])
async def test_no_more_of_an_error_s_body_is_kept_than_agreed(kind: Kind, length: int) -> None:
    async with (
        answering(sized(b"x" * length, status="404 No"), then_close=False) as (template, asked),
        transport_opener(kind)(Options(LIMITS, False, None, error_body=100)) as transport,
    ):
        for _ in range(2):
            with pytest.raises(NoDocument) as response:
                await transport.send(template, {})

    assert response.value.body == b"x" * min(length, 100)
    assert len(asked) == 2


@pytest.mark.each_client
@pytest.mark.parametrize("then_close", [True, False], ids=["and closes", "and hangs"])
async def test_an_error_whose_body_does_not_arrive_is_still_known_by_its_status(
    kind: Kind,
    then_close: bool,  # noqa: FBT001  a parameter of the table
) -> None:
    answer = http(b"par", "Content-Length: 100", status="404 No")

    async with (
        answering(answer, then_close=then_close) as (template, _),
        transport_opener(kind)(Options(IMPATIENT, False, None, error_body=1000)) as transport,
    ):
        with pytest.raises(NoDocument) as response:
            await transport.send(template, {})

    assert response.value.status == 404
    assert response.value.body == b"par"


@pytest.mark.each_client
async def test_a_connection_that_served_an_error_with_its_body_is_used_again_unless_the_server_fails(
    kind: Kind,
) -> None:
    used: list[StreamWriter] = []

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        used.append(writer)
        status = head.split(b" ")[1][1:].decode()
        writer.write(sized(b'{"a":1}', status=f"{status} X"))
        with suppress(ConnectionError):
            await writer.drain()

    async with (
        serving(write) as port,
        transport_opener(kind)(Options(LIMITS, False, None, error_body=1000)) as transport,
    ):
        for status in (404, 404, 500, 404):
            with pytest.raises(NoDocument) as response:
                await transport.send(f"http://127.0.0.1:{port}/{status}", {})
            assert response.value.body == b'{"a":1}'

    assert used[0] is used[1] is used[2]
    assert used[3] is not used[2]


async def test_a_token_that_is_denied_by_a_rule_is_renewed(connect: Connect) -> None:
    tokens = iter(["first", "second", "third"])
    asked: list[bytes] = []

    async def write(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        if head.startswith(b"POST /token"):
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.write(sized(json.dumps({"access_token": next(tokens), "expires_in": 3600}).encode()))
        else:
            asked.append(head)
            writer.write(sized(DOCUMENT) if b"second" in head else graphql("ACCESS_DENIED"))
        await writer.drain()

    async with serving(write) as port:
        access = Access(
            "oauth2",
            {"client_id": secret("client_id", "me"), "client_secret": secret("client_secret", "s3cret")},
            oauth2=OAuth2(f"http://127.0.0.1:{port}/token"),
        )
        template = f"http://127.0.0.1:{port}/orders/{{order_id}}"
        async with connect(template, responses=rules(*RULES), access=access) as client:

            async def renewed() -> bool:
                # A token that was issued within the last second is not renewed.
                return isinstance(await client.fetch(FetchRequest(ORDER)), Fetched)

            await eventually(renewed)

    assert [b"second" in head for head in asked[-2:]] == [False, True]


async def test_a_ruled_response_is_tried_again_immediately_only_if_it_is_an_outage(connect: Connect) -> None:
    counts = []
    for answer in (graphql("THROTTLED"), graphql("INTERNAL"), sized(b"", status="202 Accepted")):
        async with (
            answering(answer) as (template, asked),
            connect(template, replace(LIMITS, tries=2), responses=rules(*RULES)) as client,
        ):
            await client.fetch(FetchRequest(ORDER))
        counts.append(len(asked))

    assert counts == [1, 2, 1]
