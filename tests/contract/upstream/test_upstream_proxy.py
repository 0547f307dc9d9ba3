"""Plain and tunnelled requests through a small real proxy, and the choice of the proxy from the environment."""

import asyncio
import base64
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from fakes.upstream import delivered
from raw_http import LIMITS, ORDER, TOKEN, Connect, answering, http, serving

from ingest.domain.errors import ConfigError, CredentialFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.http.proxy import proxy_for

pytestmark = pytest.mark.each_client


@asynccontextmanager
async def proxying(refusal: bytes = b"") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A proxy, and the heads of the requests that it was sent."""
    heads: list[bytes] = []

    async def forward(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        heads.append(head)
        if refusal:
            writer.write(refusal)
            return
        method, target, _ = head.split(b" ", 2)
        host, _, port = target.removeprefix(b"http://").split(b"/")[0].partition(b":")
        from_target, to_target = await asyncio.open_connection(host.decode(), int(port))
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        else:
            to_target.write(head.replace(b"http://" + host + b":" + port, b"", 1))
        await asyncio.gather(_pump(reader, to_target), _pump(from_target, writer))
        writer.close()

    async with serving(forward) as port:
        yield f"http://127.0.0.1:{port}", heads


async def _pump(source: StreamReader, sink: StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65_536):
            sink.write(chunk)
            await sink.drain()
    sink.close()


async def test_a_plain_request_goes_through_the_proxy(connect: Connect) -> None:
    async with (
        answering(http(b"{}", "Content-Length: 2")) as (template, asked),
        proxying() as (proxy, heads),
        connect(template, LIMITS, TOKEN, proxy) as client,
    ):
        body = (await delivered(client.fetch(FetchRequest("shop:1")))).body

    assert body == b"{}"
    assert heads[0].startswith(b"GET " + template.replace("{order_id}", "shop%3A1").encode() + b" HTTP/1.1\r\n")
    assert len(asked) == 1


async def test_a_proxy_is_sent_the_ascii_form_of_a_host_name(connect: Connect) -> None:
    async with (
        proxying(http(b"{}", "Content-Length: 2")) as (proxy, heads),
        connect("http://b\u00fccher.example/{order_id}", proxy=proxy) as client,
    ):
        await delivered(client.fetch(FetchRequest("shop:1")))

    assert heads[0].startswith(b"GET http://xn--bcher-kva.example/shop%3A1 HTTP/1.1\r\n")
    assert b"\r\nHost: xn--bcher-kva.example\r\n" in heads[0]


async def test_a_tls_request_goes_through_a_tunnel_that_does_not_receive_the_token(
    connect: Connect, server_tls: ssl.SSLContext
) -> None:
    async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"{}", "Content-Length: 2"))

    async with (
        serving(answer, server_tls) as port,
        proxying() as (proxy, heads),
        connect(f"https://localhost:{port}/{{order_id}}", LIMITS, TOKEN, proxy) as client,
    ):
        body = (await delivered(client.fetch(FetchRequest(ORDER)))).body

    assert body == b"{}"
    assert heads[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
    assert TOKEN.encode() not in heads[0]


async def test_a_proxy_receives_its_password_and_no_fault_contains_it(connect: Connect) -> None:
    refusal = http(b"", "Content-Length: 0", status="407 Who are you")
    async with proxying(refusal) as (proxy, heads):
        with_password = proxy.replace("http://", "http://us%65r:s3cr3t@")
        async with connect("https://shop.example/{order_id}", LIMITS, None, with_password) as client:
            with pytest.raises(CredentialFault, match="HTTP 407: the proxy") as fault:
                await delivered(client.fetch(FetchRequest(ORDER)))

    assert base64.b64encode(b"user:s3cr3t") in heads[0]
    assert "s3cr3t" not in str(fault.value)


async def test_a_proxy_that_refuses_to_connect_has_not_reached_the_api(connect: Connect) -> None:
    refusal = http(b"", "Content-Length: 0", status="502 Nobody there")

    async with (
        proxying(refusal) as (proxy, _),
        connect("https://shop.example/{order_id}", LIMITS, None, proxy) as client,
    ):
        with pytest.raises(TransientFault, match="the proxy rejects the connection with HTTP 502") as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached


async def test_an_unavailable_proxy_is_a_transient_fault(connect: Connect) -> None:
    async with proxying() as (proxy, _):
        pass

    async with connect("http://shop.example/{order_id}", LIMITS, None, proxy) as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
async def test_a_client_does_not_read_the_environment(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with proxying() as (proxy, heads), answering(http(b"{}", "Content-Length: 2")) as (template, _):
        monkeypatch.setenv(name, proxy)
        async with connect(template) as client:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert heads == []


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:3128"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128", "https_proxy": "http://q"}, "http://q"),
        ({"HTTP_PROXY": "http://p:3128"}, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "other.example, .shop.example"}, None),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "shop.example:443"}, "http://p"),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "api.shop.example:8443"}, None),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "*"}, None),
        ({"HTTPS_PROXY": "http://p", "no_proxy": "shop.exam"}, "http://p"),
    ],
)
def test_the_environment_names_the_proxy_and_its_exceptions(environ: Mapping[str, str], proxy: str | None) -> None:
    assert proxy_for("https://user:password@api.shop.example:8443/{order_id}", environ) == proxy


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_local_addresses_are_not_reached_through_a_proxy(host: str) -> None:
    assert proxy_for(f"http://{host}:8081/{{order_id}}", {"http_proxy": "http://p"}) is None


def test_a_proxy_that_one_client_does_not_support_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^HTTP_PROXY: .* http://proxy\.example:3128$"):
        proxy_for("http://shop.example/{order_id}", {"http_proxy": "socks5://p"})


@pytest.mark.parametrize(
    "proxy",
    [
        "http://user:s3cr3t@proxy.example:99999",
        "http://user:s3cr3t@proxy.example:x",
        "http://user:1/s3cr3t@proxy.example:1",
        "http://user:1#s3cr3t@proxy.example:1",
        "http://user:1?s3cr3t@proxy.example:1",
        "http://user:s3c r3t@proxy.example:1",
        "http://user:s3@cr3t@proxy.example:1",
        "http://user:s3\\cr3t@proxy.example:1",
        "http://user:s3cr3t@[::1",
        "http://user:s3cr3t@",
    ],
)
def test_a_proxy_whose_url_the_clients_would_quote_in_errors_is_refused_without_its_password(proxy: str) -> None:
    with pytest.raises(ConfigError, match=r"^HTTP_PROXY: ") as refused:
        proxy_for("http://shop.example/{order_id}", {"http_proxy": proxy})

    assert "cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    "proxy", ["http://u:s3%40cr3t@p", "https://[::1]:3128/", "HTTP://u@p.example", "http://p_1:8080"]
)
def test_a_proxy_with_an_encoded_password_is_used_unchanged(proxy: str) -> None:
    assert proxy_for("http://shop.example/{order_id}", {"http_proxy": proxy}) == proxy


@pytest.mark.parametrize(
    ("host", "excepted", "is_direct"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "other.example, 10.1.2.0/24", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("[fd12::1]", "fd00::/8", True),
        ("[fe12::1]", "fd00::/8", False),
        ("10.1.2.3", "10.0.0.0/33, nonsense/8", False),
        ("shop.example", "10.0.0.0/8", False),
        ("[fd00::1]", "fd00::1", True),
        ("[fd00::1]", "FD00:0::1", True),
        ("[fd00::1]", "[fd00::1]", True),
        ("[fd00::1]", "[fd00::1]:8081", True),
        ("[fd00::1]", "[fd00::1]:443", False),
        ("[fd00::1]", "fd00::2", False),
    ],
)
def test_a_network_or_an_address_may_be_excepted_from_the_proxy(host: str, excepted: str, *, is_direct: bool) -> None:
    found = proxy_for(f"http://{host}:8081/{{order_id}}", {"http_proxy": "http://p", "no_proxy": excepted})

    assert (found is None) == is_direct


@pytest.mark.parametrize("url", ["https://shop.example/{order_id}", "https://shop.example:443/{order_id}"])
def test_an_exception_may_name_the_default_port(url: str) -> None:
    assert proxy_for(url, {"https_proxy": "http://p", "no_proxy": "shop.example:443"}) is None
    assert proxy_for(url, {"https_proxy": "http://p", "no_proxy": "shop.example:80"}) == "http://p"
