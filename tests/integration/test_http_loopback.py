"""An API without keys on a loopback address serves programs on its host, but no page in a browser there."""

from collections.abc import AsyncIterator

import pytest
from http_api import Api, Serve
from redis.asyncio import Redis

from ingest.api.admission.rate_limit import SharedBuckets
from ingest.queue.layout.keys import Keys
from ingest.services.api import open_admission
from ingest.settings import load_settings


@pytest.fixture
async def api(serve: Serve) -> AsyncIterator[Api]:
    async with open_admission(load_settings(api_host="127.0.0.1"), SharedBuckets(), {}) as access, serve(access) as api:
        yield api


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Host": "attacker.example:8080"},
        {"Host": "127.0.0.1.attacker.example"},
        {"Host": "127.0.0.1@attacker.example"},
        {"Host": "192.0.2.1"},
        {"Host": "[::1"},
        {"Host": ""},
        {"Origin": "http://attacker.example"},
        {"Origin": "http://localhost:1"},
        {"Origin": "null"},
    ],
)
async def test_a_page_of_another_site_can_change_nothing(
    api: Api, redis: Redis, queue_name: str, headers: dict[str, str]
) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=headers)

    assert (status, answer["code"]) == (403, "cross_origin" if "Origin" in headers else "foreign_host")
    assert await redis.xlen(Keys.of(queue_name).stream) == 0


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]"])
async def test_a_program_on_the_host_is_served_by_each_loopback_name(api: Api, host: str) -> None:
    status, _ = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers={"Host": host})
    same, _ = await api.post(
        "/v1/orders", json={"order_ids": ["1"]}, headers={"Host": host, "Origin": f"http://{host}"}
    )

    assert (status, same) == (202, 202)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize(
    "path", ["/v1/orders", "/v1/dead-letters/replay", "/v1/dead-letters/drop", "/v1/retries/run-now"]
)
async def test_a_form_of_a_page_changes_nothing(api: Api, path: str, content_type: str) -> None:
    status, answer = await api.post(path, data=b'{"everything": true}', headers={"Content-Type": content_type})

    assert (status, answer["code"]) == (415, "content_type")
