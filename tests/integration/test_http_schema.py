"""The HTTP API agrees with its OpenAPI document for requests that schemathesis generates from it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress

import pytest
import schemathesis
from http_api import running_api
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode
from support import connected, with_database

from ingest.store.schema import migrate, migrations

# What every answer has to keep, to any request.
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
EXAMPLES = 8


@schemathesis.serializer("application/x-ndjson")
def _ndjson(_: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def api_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An API in a separate thread on real servers, because schemathesis sends requests without an event loop."""
    servers = request.getfixturevalue("servers")
    started: Future[str] = Future()
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with connected(servers.postgres_dsn) as sql:
            await sql.execute("CREATE DATABASE http_schema")
        dsn = with_database(servers.postgres_dsn, "http_schema")
        await migrate(dsn, migrations())
        async with running_api(servers.redis_url, dsn, "schema") as api:
            started.set_result(api.url)
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    yield started.result(timeout=30)
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(30)


def test_every_answer_is_documented_and_none_is_a_server_error(api_url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{api_url}/openapi.json")
    checks = CHECKS.get_by_names(CHECKED)
    operations = [result.ok() for result in schema.get_all_operations()]
    asked = dict.fromkeys((operation.label for operation in operations), 0)

    for operation in operations:
        for mode in GenerationMode:
            ask(operation, mode, api_url, checks, asked)

    assert len(operations) >= 4
    assert min(asked.values()) > 0


def ask(operation, mode, api_url, checks, asked) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        asked[operation.label] += 1
        case.call_and_validate(base_url=api_url, checks=checks)

    # An operation without parameters and body cannot be called wrongly.
    with suppress(Unsatisfiable):
        run()
