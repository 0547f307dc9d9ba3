"""The real `ingest api` as processes: shared, killed and stopped, with rejected, slow and idle clients."""

import asyncio
import html
import json
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import psutil
import pytest
import webhook_requests as made
from acceptance.commands import WorkerCommand, is_refused
from redis.asyncio import Redis
from support import Cli, eventually

from ingest.lab.servers.server import free_port
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client

# The documented number would take a minute of CPU time.
IDLE = 10_000 if os.environ.get("INGEST_TEST_SCALE") == "full" else 2_000
Start = Callable[..., WorkerCommand]


@pytest.fixture
def start(cli: Cli) -> Iterator[Start]:
    started: list[WorkerCommand] = []

    def start(*options: str, **settings: object) -> WorkerCommand:
        own = {f"INGEST_{name.upper()}": str(value) for name, value in settings.items()}
        defaults = {"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}
        started.append(WorkerCommand(cli.start("api", *options, env=defaults | own)))
        return started[-1]

    yield start
    for command in started:
        command.close()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(redis_url) as client:
        yield client


async def url_of(api: WorkerCommand) -> str:
    return str((await api.says("listening"))["url"])


def alone() -> aiohttp.ClientSession:
    """A client with a new connection for each request, which any process may accept."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


async def announce(http: aiohttp.ClientSession, url: str, order_id: str) -> int:
    async with http.post(f"{url}/v1/orders", json={"order_ids": [order_id]}) as answer:
        return answer.status


async def test_processes_share_a_port_and_a_killed_one_is_replaced_while_the_others_answer(
    start: Start, redis: Redis, queue_name: str
) -> None:
    api = start(api_processes=2)
    url = await url_of(api)
    async with alone() as http:
        await eventually(lambda: accepted(http, url))
        first = api.pid_of("api-0")

        os.kill(first, signal.SIGKILL)
        statuses = [await announce(http, url, f"after-{number}") for number in range(50)]
        await api.says("process_died", process="api-0")

        async def replaced() -> bool:
            return api.pid_of("api-0") != first

        await eventually(replaced)

    assert statuses.count(202) >= 49, "a request that the killed process had may be lost with it"
    assert await redis.xlen(Keys.of(queue_name).stream) >= 50
    assert await api.stop() == 0


async def accepted(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        return await announce(http, url, "first") == 202
    except aiohttp.ClientError:
        return False


async def test_while_it_finishes_a_request_at_its_stop_new_connections_are_refused(
    start: Start, redis: Redis, queue_name: str
) -> None:
    metrics_port = free_port()
    api = start(api_processes=2, api_metrics_port=metrics_port)
    host, port = (await url_of(api)).removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: 15\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")

    api.ask(signal.SIGTERM)

    await eventually(partial(is_refused, host, int(port)), within=15)
    await eventually(partial(is_refused, host, metrics_port), within=15)
    writer.write(b"first\nsecond\n\n\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 202")
    writer.close()
    assert await api.exit_code() == 0
    assert await redis.xlen(Keys.of(queue_name).stream) == 2


async def test_the_metrics_of_all_processes_are_one_page(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    api = start(api_processes=2, api_metrics_port=port)
    url = await url_of(api)
    async with alone() as http:
        for number in range(20):
            assert await announce(http, url, str(number)) == 202
        async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            page = await answer.text()

    assert 'ingest_api_accepted_total{origin="api",source=""} 20.0' in page
    assert 'ingest_api_request_seconds_count{code="202",method="POST",route="/v1/orders"} 20.0' in page
    assert await api.stop() == 0


async def test_one_command_serves_all_sources_and_counts_each(
    start: Start, redis: Redis, queue_name: str, tmp_path: Path
) -> None:
    sources = tmp_path / "sources.toml"
    tables = (
        f'[sources.{name}]\nupstream = {{ url = "https://{name}.example/{{order_id}}" }}\n' for name in ("a", "b")
    )
    sources.write_text("".join(tables))
    port = free_port()
    api = start(api_processes=2, api_metrics_port=port, sources=sources)
    url = await url_of(api)
    async with alone() as http:
        for name, count in (("a", 3), ("b", 5)):
            for number in range(count):
                path = f"{url}/v1/sources/{name}/orders"
                async with http.post(path, json={"order_ids": [str(number)]}) as answer:
                    assert answer.status == 202
        async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            page = await answer.text()

    assert [await redis.xlen(Keys.of(f"{queue_name}/{name}").stream) for name in ("a", "b")] == [3, 5]
    for name, count in (("a", 3), ("b", 5)):
        assert f'ingest_api_accepted_total{{origin="api",source="{name}"}} {count}.0' in page
    assert await api.stop() == 0


@pytest.mark.parametrize(
    ("setting", "section"),
    [("sources", '{{ upstream.url = "https://shop.example/{{order_id}}", webhook = {} }}'), ("webhooks", "{}")],
)
async def test_a_missing_secret_of_a_webhook_keeps_no_other_webhook_down(
    start: Start, tmp_path: Path, setting: str, section: str
) -> None:
    file, body = tmp_path / "file.toml", b'{"id": 1}'
    for name in ("a", "b"):
        webhook = f'{{ profile = "shopify", secret_files = ["{name}.secret"] }}'
        with file.open("a") as stream:
            stream.write(f"sources.{name} = {section.format(webhook)}\n")
    (tmp_path / "b.secret").write_text(made.SECRET)
    api = start(**{setting: file})
    url = await url_of(api)

    async with alone() as http:

        async def responds(name: str, status: int, text: str) -> bool:
            async with http.post(f"{url}/v1/webhooks/{name}", data=body, headers=made.shopify(body)) as response:
                return response.status == status and text in await response.text()

        await eventually(lambda: responds("b", 200, "accepted"), within=60)
        assert await responds("a", 503, "no_secret")
        reported = await api.says("secret_not_reloaded")
        assert reported["settings"] == "the webhook a"
        assert "a.secret" in reported["error"]
        (tmp_path / "a.secret").write_text(made.SECRET)
        # Both webhooks of a file belong to the same source.
        await eventually(lambda: responds("a", 200, "result"), within=60)
    assert await api.stop() == 0


def described(*names: str, **lines: str) -> str:
    """The sources file with these sources, and with a further line of TOML in their sections."""
    return "".join(
        f'[sources.{name}]\n{lines.get(name, "")}\nupstream.url = "https://{name}.example/{{order_id}}"\n'
        for name in names
    )


async def status_of(http: aiohttp.ClientSession, url: str, body: bytes) -> int:
    """The status of a webhook's response, or 0 if the connection was closed before the body was sent."""
    try:
        async with http.post(url, data=body, headers=made.shopify(body)) as response:
            return response.status
    except aiohttp.ClientOSError:
        return 0


MAPPING = """
order = { id = "id", status = "status", placed_at = "placed_at", currency = "currency" }
lines = [{ from = "lines", sku = "sku", quantity = "quantity", unit_price = "unit_price" }]
"""
WEBHOOK = 'webhook = { profile = "shopify", secret_files = ["secret"] }'


async def test_the_processes_follow_the_sources_file_without_rejecting_a_request(start: Start, tmp_path: Path) -> None:
    sources, body = tmp_path / "sources.toml", b'{"id": 1}'
    (tmp_path / "secret").write_text(made.SECRET)
    sources.write_text(described("a"))
    api = start(sources=sources, api_processes=2)
    url = await url_of(api)
    async with alone() as http:

        async def responds(path: str, wanted: int) -> bool:
            async with http.get(f"{url}/v1/sources") as response:
                assert response.status == 200
            # Both processes have changed.
            return [await status_of(http, f"{url}{path}", body) for _ in range(8)] == [wanted] * 8

        await eventually(lambda: responds("/v1/webhooks/b", 404))
        sources.write_text(described("a", "b", b=WEBHOOK))
        await eventually(lambda: responds("/v1/webhooks/b", 200), within=60)
        sources.write_text("[sources")
        assert "not TOML" in (await api.says("sources_not_reloaded"))["problem"]
        await eventually(lambda: responds("/v1/webhooks/b", 200), within=60)
        sources.write_text(described("a"))
        await eventually(lambda: responds("/v1/webhooks/b", 404), within=60)

    assert [each["added"] for each in api.events("sources_reloaded")] == [["b"], []]
    assert await api.stop() == 0


@pytest.mark.parametrize("error", ['webhook = { profile = "nonsense" }', 'mapping = "own.toml"', "nonsense = 1"])
async def test_a_source_that_cannot_be_used_keeps_no_other_source_down(
    cli: Cli, start: Start, tmp_path: Path, error: str
) -> None:
    sources, body = tmp_path / "sources.toml", b'{"id": 1}'
    (tmp_path / "secret").write_text(made.SECRET)
    (tmp_path / "own.toml").write_text("[order")
    sources.write_text(described("a", "b", a=f"{error}\n{'' if 'webhook' in error else WEBHOOK}", b=WEBHOOK))
    api = start(sources=sources)
    url = await url_of(api)
    async with alone() as http:

        async def responds(name: str, status: int) -> bool:
            return await status_of(http, f"{url}/v1/webhooks/{name}", body) == status

        await eventually(lambda: responds("b", 200), within=60)
        await eventually(lambda: responds("a", 503), within=60)

        async def counts_it() -> bool:
            done = await asyncio.to_thread(cli.run, "doctor", env={"INGEST_SOURCES": str(sources), "COLUMNS": "200"})
            text = " ".join(done.stdout.split())
            assert "dead-letter" not in text
            return (
                "a: webhooks rejected within an hour: 1 unusable_configuration -> run `ingest webhook check --source a`"
                in text
            )

        reported = await api.says("source_failed")
        assert reported["source"] == "a"
        assert "INGEST_MAPPING" not in reported["problem"]
        await eventually(counts_it, within=60)
        if "nonsense = 1" not in error:
            # Its orders can be enqueued and seen.
            async with http.post(f"{url}/v1/sources/a/orders", json={"order_ids": ["1"]}) as response:
                assert response.status == 202
            async with http.get(f"{url}/console/sources/show?source=a") as response:
                assert reported["problem"].split(",")[0] in html.unescape(await response.text())
            async with http.put(f"{url}/v1/sources/a/orders/1", json={"id": "1"}) as response:
                document = await response.json()
            assert (response.status, document["code"]) == (503, "unusable_configuration")
        if "mapping" in error:
            (tmp_path / "own.toml").write_text(MAPPING)
        else:
            sources.write_text(described("a", "b", a=WEBHOOK, b=WEBHOOK))
        await eventually(lambda: responds("a", 200), within=60)
    assert await api.stop() == 0


async def test_each_view_shows_when_a_webhook_was_accepted_and_why_others_were_rejected(
    cli: Cli, start: Start, tmp_path: Path
) -> None:
    sources, body = tmp_path / "sources.toml", b'{"id": 1}'
    (tmp_path / "secret").write_text(made.SECRET)
    sources.write_text(described("a", "b", a=WEBHOOK, b=WEBHOOK))
    api = start(sources=sources, api_processes=2)
    url = await url_of(api)
    env = {"INGEST_SOURCES": str(sources), "COLUMNS": "200"}
    async with alone() as http:

        async def responds(headers: dict[str, str], status: int) -> bool:
            async with http.post(f"{url}/v1/webhooks/a", data=body, headers=headers) as response:
                return response.status == status

        await eventually(lambda: responds(made.shopify(body), 200))
        for _ in range(3):
            assert await responds({**made.shopify(body), "X-Shopify-Hmac-Sha256": "wrong"}, 401)

        async def is_shown(*arguments: str) -> bool:
            done = await asyncio.to_thread(cli.run, *arguments, env=env)
            text = " ".join(done.stdout.split())
            return "webhooks rejected within an hour: 3 bad_signature" in text and "webhooks of b" not in text

        async def is_in_console() -> bool:
            async with http.get(f"{url}/console/sources/show?source=a") as response:
                text = " ".join((await response.text()).split())
            return "last accepted" in text and "rejected within an hour: 3 bad_signature" in text

        await eventually(lambda: is_shown("source", "list"), within=60)
        await eventually(lambda: is_shown("doctor"), within=60)
        await eventually(is_in_console, within=60)
        done = await asyncio.to_thread(cli.run, "source", "list", "--json", env=env)
        shown = {each["source"]: each["webhooks"] for each in map(json.loads, done.stdout.splitlines())}
        assert shown["a"]["rejected"] == {"bad_signature": 3}
        assert shown["a"]["accepted_at"] is not None
        assert shown["b"] is None
        # A new process continues the counts.
        sources.write_text(described("a", "b", a=f"coalesce = '1s'\n{WEBHOOK}", b=WEBHOOK))
        await api.says("sources_reloaded")
        assert await is_shown("source", "list")
    assert await api.stop() == 0


async def test_without_redis_it_starts_and_says_so_to_each_request(start: Start) -> None:
    api = start(redis_url="redis://127.0.0.1:1/0")
    url = await url_of(api)
    async with alone() as http:
        async with http.post(f"{url}/v1/orders", json={"order_ids": ["1"]}) as answer:
            assert (answer.status, (await answer.json())["code"]) == (503, "queue_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
        async with http.get(f"{url}/readyz") as answer:
            assert answer.status == 503
        async with http.get(f"{url}/healthz") as answer:
            assert answer.status == 200

    assert await api.stop() == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"api_host": "0.0.0.0"}, "INGEST_API_KEYS_FILE"),
        ({"api_cert_file": "/nonexistent.pem"}, "INGEST_API_CERT_FILE"),
        ({"api_key_file": "/nonexistent.pem"}, "INGEST_API_KEY_FILE"),
        ({"api_port": "tcp://10.0.0.1:8080"}, "INGEST_API_PORT"),
        ({"api_processes": "0"}, "INGEST_API_PROCESSES"),
        ({"durability": "eternal"}, "INGEST_DURABILITY"),
        ({"durability": "fsync"}, "INGEST_DURABILITY"),
        ({"durability": "replicated", "durability_replicas": "2"}, "INGEST_DURABILITY"),
        ({"durability_replicas": "0"}, "INGEST_DURABILITY_REPLICAS"),
        ({"mapping": "/nonexistent.toml"}, "INGEST_MAPPING"),
    ],
)
def test_wrong_settings_are_one_line_with_exit_code_2(cli: Cli, settings: dict[str, str], named: str) -> None:
    own = {f"INGEST_{name.upper()}": value for name, value in settings.items()}

    refused = cli.run("api", env={"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"} | own)

    (line,) = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert refused.returncode == 2
    assert named in line


async def test_an_open_api_on_a_network_has_to_be_asked_for(start: Start) -> None:
    api = start(api_host="0.0.0.0", api_open="on")

    await api.says("api_open")
    await url_of(api)

    assert await api.stop() == 0


@pytest.mark.long
async def test_slow_and_idle_clients_leave_others_served_and_memory_bounded(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle_clients = min(IDLE, hard - 2_000)
    api = start(api_header_timeout=60, api_body_timeout=60)
    url = await url_of(api)
    port = int(url.rpartition(":")[2])
    await eventually(lambda: until_served(url))
    process = psutil.Process(api.pid_of("api-0"))
    before = process.memory_info().rss
    async with AsyncExitStack() as stack:
        writers: list[asyncio.StreamWriter] = []
        try:
            for number in range(1_000 + idle_clients):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                if number < 500:
                    writer.write(b"POST /v1/orders HT")
                elif number < 1_000:
                    head = b"POST /v1/orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    writer.write(head + b"Content-Length: 1000\r\n\r\n{")

            async def drip() -> None:
                while True:
                    for writer in writers[:1_000]:
                        writer.write(b" ")
                    await asyncio.sleep(1)

            dripping = asyncio.create_task(drip())
            stack.callback(dripping.cancel)
            async with aiohttp.ClientSession() as http:
                statuses = [await announce(http, url, str(number)) for number in range(300)]
            grown = process.memory_info().rss - before
        finally:
            for writer in writers:
                writer.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert statuses == [202] * 300
    assert grown < 40_000 * len(writers), f"{grown / len(writers):,.0f} bytes for each of {len(writers):,} connections"
    assert await api.stop() == 0


async def until_served(url: str) -> bool:
    async with alone() as http:
        return await accepted(http, url)
