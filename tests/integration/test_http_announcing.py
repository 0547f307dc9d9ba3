"""POST and PUT of orders on a real Redis."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from http_api import NOWHERE, Api, Serve, queued, running_api
from integration.scene import document
from redis.asyncio import Redis
from support import eventually

from ingest.lab.servers import EmbeddedServers
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
async def api(serve: Serve) -> AsyncIterator[Api]:
    async with serve(api_body_limit=150_000) as api:
        yield api


async def queued_ids(redis: Redis, queue: str) -> list[str]:
    return [fields[b"order_id"].decode() for fields in await queued(redis, queue)]


async def test_announced_orders_are_in_the_queue_when_the_answer_comes(api: Api, redis: Redis, queue_name: str) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1", "2"]})

    assert (status, answer) == (202, {"accepted": 2, "duplicates": 0})
    assert await queued_ids(redis, queue_name) == ["1", "2"]


async def test_express_orders_go_into_their_lane(api: Api, redis: Redis, queue_name: str) -> None:
    await api.post("/v1/orders", json={"order_ids": ["1"], "express": True})

    assert [len(await queued(redis, queue_name, lane)) for lane in ("stream", "express")] == [0, 1]


@pytest.mark.parametrize("member", ["origin", "source"])
@pytest.mark.parametrize("origin", ["webhook:shopify", "s" * 100])
async def test_an_origin_names_the_key_that_gave_it_and_earlier_clients_call_it_source(
    api: Api, redis: Redis, queue_name: str, origin: str, member: str
) -> None:
    await api.post("/v1/orders", json={"order_ids": ["1"], member: origin})
    await api.post("/v1/orders", data=f'{{"order_id": "2", "{member}": "{origin}"}}', headers=NDJSON)

    expected = f"key:anonymous:{origin}".encode()
    assert [entry[b"origin"] for entry in await queued(redis, queue_name)] == [expected, expected]


async def test_one_invalid_id_is_named_and_nothing_is_queued(api: Api, redis: Redis, queue_name: str) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1", "a b "]})

    assert (status, answer["code"], answer["index"]) == (422, "invalid_order_id", 1)
    assert await queued(redis, queue_name) == []


@pytest.mark.parametrize(
    "line", ["536365", "007", "true1", "nullable", "1e3x", "1.5.2", "NaN-1", '"NaN"', '"null"', '"1e3"']
)
async def test_a_line_of_plain_text_is_an_order_id(api: Api, redis: Redis, queue_name: str, line: str) -> None:
    status, _ = await api.post("/v1/orders", data=line, headers=NDJSON)

    assert status == 202
    assert await queued_ids(redis, queue_name) == [line.strip('"')]


@pytest.mark.parametrize(
    "codings",
    [
        b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked",
        b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\nTransfer-Encoding: chunked",
        b"Content-Encoding: identity, gzip\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
    ],
)
@pytest.mark.parametrize(
    ("content_type", "body"), [(b"json", b'14\r\n{"order_ids": ["1"]}'), (b"x-ndjson", b'3\r\n"1"')]
)
async def test_a_body_that_is_encoded_in_any_way_is_refused(
    api: Api, redis: Redis, queue_name: str, codings: bytes, content_type: bytes, body: bytes
) -> None:
    head = b"POST /v1/orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/" + content_type

    async with api.connection() as (reader, writer):
        writer.write(head + b"\r\n" + codings + b"\r\n\r\n" + body + b"\r\n0\r\n\r\n")
        answered = await reader.read()

    assert answered.split()[1] == b"415", answered
    assert await queued(redis, queue_name) == []


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b'{"order_ids": ["1"]}', "text/plain", 415, "content_type"),
        (b'{"order_ids": ["1"]', "application/json", 400, "invalid_json"),
        (b'{"order_ids": ["\xff"]}', "application/json", 400, "invalid_json"),
        (b'{"order_ids": ["1", NaN]}', "application/json", 400, "invalid_json"),
        (b'{"order_ids": []}', "application/json", 422, "invalid_body"),
        (b'{"order_ids": "1"}', "application/json", 422, "invalid_body"),
        (b'{"order_ids": ["1"], "urgent": true}', "application/json", 422, "invalid_body"),
        (b'{"order_ids": ["1"], "origin": ""}', "application/json", 422, "invalid_body"),
        (b'{"order_ids": [' + b'"1",' * 10_000 + b'"1"]}', "application/json", 422, "invalid_body"),
        (b"[" * 100_000, "application/json", 422, "invalid_body"),
        (b"", "application/x-ndjson", 422, "no_orders"),
        (b"\n \r\n\n", "application/x-ndjson", 422, "no_orders"),
        (b'{"order_ids": ["' + b"1" * 200_000, "application/json", 413, "body_too_large"),
    ],
)
async def test_what_is_no_list_of_ids_is_refused(
    api: Api, redis: Redis, queue_name: str, body: bytes, content_type: str, status: int, code: str
) -> None:
    answered, answer = await api.post("/v1/orders", data=body, headers={"Content-Type": content_type})

    assert (answered, answer["code"]) == (status, code)
    assert await queued(redis, queue_name) == []


# -- NDJSON ---------------------------------------------------------------------------------------------------


async def test_ndjson_takes_ids_and_objects_line_by_line(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'"1"\n2\r\n\n{"order_id": "3", "origin": "erp"}\n  "4"  \n5'

    status, answer = await api.post("/v1/orders", data=body, headers=NDJSON)

    assert (status, answer) == (202, {"accepted": 5, "duplicates": 0})
    assert await queued_ids(redis, queue_name) == ["1", "2", "3", "4", "5"]
    assert (await queued(redis, queue_name))[2][b"origin"] == b"key:anonymous:erp"


@pytest.mark.parametrize("line", [b"A-1", b'"A-1"', b'{"order_id": "A-1"}'])
async def test_ndjson_may_begin_with_a_byte_order_mark(api: Api, redis: Redis, queue_name: str, line: bytes) -> None:
    status, answer = await api.post("/v1/orders", data=b"\xef\xbb\xbf" + line + b"\n2\n", headers=NDJSON)

    assert (status, answer) == (202, {"accepted": 2, "duplicates": 0})
    assert await queued_ids(redis, queue_name) == ["A-1", "2"]


async def test_ndjson_in_pieces_of_any_size_keeps_its_lines(api: Api, redis: Redis, queue_name: str) -> None:
    ids = [f"order-{number}" for number in range(1200)]
    body = "\n".join(ids).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 997):
            yield body[start : start + 997]

    status, answer = await api.post("/v1/orders", data=pieces(), headers=NDJSON)

    assert (status, answer["accepted"]) == (202, 1200)
    assert await queued_ids(redis, queue_name) == ids


async def test_orders_before_an_invalid_line_are_accepted_and_counted(api: Api, redis: Redis, queue_name: str) -> None:
    body = b"1\n2\n{}\n4\n"

    status, answer = await api.post("/v1/orders", data=body, headers=NDJSON)

    assert (status, answer["code"], answer["line"], answer["accepted"]) == (422, "invalid_line", 3, 2)
    assert await queued_ids(redis, queue_name) == ["1", "2"]


@pytest.mark.parametrize(
    "line",
    [
        *(b"a\tb", b'"1', b"{", b'{"order_id": 1}', b"[1]", b"\xff", b'"' + b"x" * 2000 + b'"'),
        *(b"null", b"true", b"false", b"1e3", b"1E3", b"1.5", b"-1", b"-0.5e-2", b"  null \r"),
        *(b"NaN", b"Infinity", b"-Infinity", b"\tNaN \r", b"[NaN]", b'{"order_id": NaN}'),
    ],
)
async def test_a_line_that_announces_no_order_is_named(api: Api, redis: Redis, queue_name: str, line: bytes) -> None:
    status, answer = await api.post("/v1/orders", data=line, headers=NDJSON)

    assert (status, answer["code"], answer["line"], answer["accepted"]) == (422, "invalid_line", 1, 0)
    assert await queued(redis, queue_name) == []


async def test_no_more_than_100_000_lines_are_taken(api: Api, redis: Redis, queue_name: str) -> None:
    status, answer = await api.post("/v1/orders", data=b"1\n" * 100_001, headers=NDJSON)

    assert (status, answer["line"], answer["accepted"]) == (422, 100_001, 100_000)
    assert await redis.xlen(Keys.of(queue_name).stream) == 100_000


# -- PUT ------------------------------------------------------------------------------------------------------


async def test_a_pushed_order_is_queued_with_its_document(api: Api, redis: Redis, queue_name: str) -> None:
    body = document("A:1")

    assert await api.call("PUT", "/v1/orders/A%3A1", data=body, headers=JSON) == (202, {"accepted": 1, "duplicates": 0})

    (entry,) = await queued(redis, queue_name)
    assert (entry[b"order_id"], entry[b"document"]) == (b"A:1", body)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/orders/2", document("1"), 422, "invalid_order"),
        ("/v1/orders/1", b"{}", 422, "invalid_order"),
        ("/v1/orders/1", b"", 422, "invalid_order"),
        ("/v1/orders/%20", document("1"), 422, "invalid_order_id"),
        ("/v1/orders/1%2F2", document("1"), 422, "invalid_order"),
        ("/v1/orders/1%0A2", document("1"), 422, "invalid_order_id"),
        ("/v1/orders/%FF", document("%FF"), 422, "invalid_order_id"),
        ("/v1/orders/" + "1" * 129, document("1"), 422, "invalid_order_id"),
    ],
)
async def test_what_is_no_order_of_that_id_is_not_queued(
    api: Api, redis: Redis, queue_name: str, path: str, body: bytes, status: int, code: str
) -> None:
    answered, problem = await api.call("PUT", path, data=body, headers=JSON)

    assert (answered, problem["code"]) == (status, code)
    assert await queued(redis, queue_name) == []


# -- the Idempotency-Key --------------------------------------------------------------------------------------


async def test_a_repeated_request_gets_the_same_answer_and_queues_nothing(
    api: Api, redis: Redis, queue_name: str
) -> None:
    first = await api.post("/v1/orders", json={"order_ids": ["1", "2"]}, headers={"Idempotency-Key": '"k"'})
    second = await api.post("/v1/orders", json={"order_ids": ["1", "2"]}, headers={"Idempotency-Key": "k"})

    assert first == second == (202, {"accepted": 2, "duplicates": 0})
    assert await queued_ids(redis, queue_name) == ["1", "2"]


async def test_a_repeated_ndjson_request_gets_the_same_answer_and_queues_nothing(
    api: Api, redis: Redis, queue_name: str
) -> None:
    body = "\n".join(map(str, range(1200)))
    headers = {**NDJSON, "Idempotency-Key": '"k"'}

    first = await api.post("/v1/orders", data=body, headers=headers)
    second = await api.post("/v1/orders", data=body, headers=headers)
    other = await api.post("/v1/orders", data=body + "\nlast", headers=headers)

    assert first == second == (202, {"accepted": 1200, "duplicates": 0})
    assert (other[0], other[1]["code"]) == (422, "idempotency_key_reused")
    assert await redis.xlen(Keys.of(queue_name).stream) == 1200


@pytest.mark.parametrize("other", [{"order_ids": ["2"]}, {"order_ids": ["1"], "express": True}])
async def test_a_key_that_belongs_to_another_payload_is_refused(
    api: Api, redis: Redis, queue_name: str, other: dict[str, object]
) -> None:
    headers = {"Idempotency-Key": '"k"'}
    await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)

    status, answer = await api.post("/v1/orders", json=other, headers=headers)

    assert (status, answer["code"]) == (422, "idempotency_key_reused")
    assert await queued_ids(redis, queue_name) == ["1"]


@pytest.mark.parametrize("key", ["", '"', '""', '"a', 'a"', '"a" "b"', '"\\x"', "a,b", "\u00e9", "x" * 201])
async def test_a_malformed_key_is_refused(api: Api, redis: Redis, queue_name: str, key: str) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers={"Idempotency-Key": key})

    assert (status, answer["code"]) == (400, "invalid_idempotency_key")
    assert await queued(redis, queue_name) == []


async def test_a_repeat_during_the_first_request_is_a_conflict_in_every_process(
    serve: Serve, api: Api, queue_name: str, redis: Redis
) -> None:
    headers = {**NDJSON, "Idempotency-Key": '"k"'}
    more = asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield b"1\n" * 500
        await more.wait()
        yield b"2\n"

    async with serve() as other:
        first = asyncio.create_task(api.post("/v1/orders", data=slow_body(), headers=headers))
        await eventually(lambda: redis.exists(Keys.of(queue_name).stream))
        status, answer = await other.post("/v1/orders", data=b"1\n", headers=headers)
        more.set()

        assert (status, answer["code"]) == (409, "request_in_progress")
        assert (await first)[0] == 202


async def test_a_refused_request_leaves_its_key_free(serve: Serve, queue_name: str, redis: Redis) -> None:
    headers = {"Idempotency-Key": '"k"'}
    await redis.xadd(Keys.of(queue_name).stream, {"order_id": "0"})
    async with serve(backlog_limit=1) as api:
        refused, problem = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)
        await redis.delete(Keys.of(queue_name).stream)
        accepted, _ = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)

    assert (refused, problem["code"], accepted) == (429, "backlog_full", 202)


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": '"k"'}])
async def test_a_redis_without_memory_is_a_full_queue_with_and_without_a_key(
    own_servers: EmbeddedServers, queue_name: str, headers: dict[str, str]
) -> None:
    async with (
        control_client(own_servers.redis_url) as redis,
        running_api(own_servers.redis_url, NOWHERE, queue_name) as api,
    ):
        await redis.config_set("maxmemory", 1)
        try:
            status, answer = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)
        finally:
            await redis.config_set("maxmemory", 0)

    assert (status, answer["code"]) == (429, "queue_full")


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": '"k"'}])
async def test_a_redis_that_refuses_us_is_logged_with_and_without_a_key(
    redis_url: str, queue_name: str, capsys: pytest.CaptureFixture[str], headers: dict[str, str]
) -> None:
    wrong = re.sub("://[^@]*@", "://nobody:wrong@", redis_url)
    async with running_api(wrong, NOWHERE, queue_name) as api:
        status, answer = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)

    assert (status, answer["code"]) == (503, "queue_unavailable")
    output = capsys.readouterr()
    assert "Redis denies access" in output.out + output.err
