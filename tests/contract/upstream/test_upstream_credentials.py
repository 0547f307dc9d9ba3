"""Credentials: the headers of each kind, and how an OAuth 2.0 token is requested, renewed and replaced."""

import asyncio
import base64
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fakes.upstream import delivered
from raw_http import DOCUMENT, LIMITS, ORDER, OTHER, QUICK, Connect, answering, counted, http, secret, serving
from support import eventually

from ingest.domain.errors import CredentialFault, TokenFault, TokenRefused
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.access.endpoint import Access, OAuth2
from ingest.upstream.client import UpstreamClient

CLIENT, SECRET = "shop client", "s3cr3t/+&="
REQUEST = FetchRequest(ORDER)


def oauth2(url: str, parameters: str = "", **options: Any) -> Access:
    secrets = {"client_id": secret("id", CLIENT), "client_secret": secret("secret", SECRET)}
    if parameters:
        secrets["parameters"] = secret("parameters", parameters)
    return Access("oauth2", secrets, oauth2=OAuth2(url, **options))


@pytest.fixture
def issuing(api: SimulatedApi) -> SimulatedApi:
    """The API requires a token of its authorization server, which has just started."""
    api.behave(client=f"{CLIENT}:{SECRET}")
    api.authority.revoke()
    return api


# -- kinds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "access"),
    [
        ({"token": "t1"}, Access("bearer", {"token": secret("token", "t1")})),
        ({"basic": "me:p:w%"}, Access("basic", {"user": secret("user", "me"), "password": secret("password", "p:w%")})),
        ({"key": "X-Shop-Key: k 1"}, Access("header", {"token": secret("token", "k 1")}, header="x-shop-key")),
        ({"key": "X-Shop-Key: k1"}, Access(secrets={"headers": secret("headers", "X-A: 1\nX-Shop-Key: k1")})),
    ],
    ids=["bearer", "basic", "header", "own headers"],
)
async def test_each_kind_of_credential_is_accepted_and_nothing_without_it(
    api: SimulatedApi, connect: Connect, wanted: dict[str, str], access: Access
) -> None:
    api.behave(**wanted)

    async with connect(api.url_template, access=access) as client, connect(api.url_template) as without:
        assert (await delivered(client.fetch(REQUEST))).body == DOCUMENT
        with pytest.raises(CredentialFault, match="HTTP 401"):
            await delivered(without.fetch(REQUEST))


async def test_own_headers_take_the_place_of_the_usual_ones(connect: Connect) -> None:
    access = Access(secrets={"headers": secret("headers", '{"accept": "text/x", "X-Shop": "1"}')})

    async with (
        answering(http(b"{}", "Content-Length: 2")) as (template, asked),
        connect(template, access=access) as client,
    ):
        await delivered(client.fetch(REQUEST))

    assert asked[0].lower().count(b"accept: text/x") == asked[0].lower().count(b"\r\naccept:") == 1
    assert b"X-Shop: 1\r\n" in asked[0]
    assert b"order-ingest" in asked[0]


async def test_a_post_has_the_id_in_its_body_and_is_json_unless_a_header_says_otherwise(connect: Connect) -> None:
    received: list[tuple[bytes, bytes]] = []

    async def note(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        received.append((head, await reader.readexactly(20)))
        writer.write(http(b"{}", "Content-Length: 2"))

    own = Access(secrets={"headers": secret("headers", "content-type: text/x")})
    async with serving(note) as port:
        for access in (Access(), own):
            template = f"http://127.0.0.1:{port}/graphql"
            async with connect(template, method="POST", body='{"id": "{order_id}"}', access=access) as client:
                await delivered(client.fetch(FetchRequest("shop:1.a-b")))

    (head, body), (other_head, _) = received
    assert head.startswith(b"POST /graphql HTTP/1.1\r\n")
    assert body == b'{"id": "shop:1.a-b"}'
    assert b"Content-Type: application/json\r\n" in head
    assert b"text/x" in other_head
    assert b"application/json" not in other_head.replace(b"Accept: application/json", b"")


@pytest.mark.parametrize(
    ("status", "method"), [(301, b"GET"), (302, b"GET"), (303, b"GET"), (307, b"POST"), (308, b"POST")]
)
async def test_a_redirected_post_is_repeated_only_if_the_status_says_so(
    connect: Connect, status: int, method: bytes
) -> None:
    received: list[bytes] = []

    async def lead_on(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        received.append(head.split(b" ")[0] + (await reader.readexactly(2) if b"POST" in head else b""))
        moved = http(b"", "Location: /there", "Content-Length: 0", status=f"{status} Moved")
        writer.write(moved if len(received) == 1 else http(b"{}", "Content-Length: 2"))

    async with (
        serving(lead_on) as port,
        connect(f"http://127.0.0.1:{port}/{{order_id}}", method="POST", body="[]") as client,
    ):
        await delivered(client.fetch(REQUEST))

    assert received == [b"POST[]", method + (b"[]" if method == b"POST" else b"")]


# -- OAuth 2.0 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_auth", ["basic", "body"])
async def test_one_token_is_requested_and_shared_by_all_orders(
    issuing: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics, client_auth: str
) -> None:
    issuing.behave(token_latency=0.05)

    async with connect(issuing.url_template, access=oauth2(issuing.token_url, client_auth=client_auth)) as client:
        fetched = await asyncio.gather(*(delivered(client.fetch(REQUEST)) for _ in range(100)))

    assert {document.body for document in fetched} == {DOCUMENT}
    assert issuing.authority.requests == 1
    assert counted(shared_metrics) == {"2xx": 100}


async def test_a_token_is_renewed_early_while_orders_go_on_and_one_request_at_a_time(
    issuing: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics
) -> None:
    issuing.behave(token_lifetime=3.0, token_latency=0.05)

    async with connect(issuing.url_template, access=oauth2(issuing.token_url)) as client:
        await delivered(client.fetch(REQUEST))
        while issuing.authority.requests < 3:
            await asyncio.gather(*(delivered(client.fetch(REQUEST)) for _ in range(5)))
            await asyncio.sleep(0.01)
        await delivered(client.fetch(REQUEST))

    assert counted(shared_metrics).keys() == {"2xx"}  # no request was rejected because each token was replaced early
    assert issuing.authority.peak == 1


async def test_a_token_that_is_refused_is_replaced_once_and_the_request_made_again(
    issuing: SimulatedApi, connect: Connect
) -> None:
    async with connect(issuing.url_template, access=oauth2(issuing.token_url)) as client:
        await delivered(client.fetch(REQUEST))
        await asyncio.sleep(1.0)  # a token that is rejected immediately would not be replaced
        issuing.authority.revoke()

        fetched = await asyncio.gather(*(delivered(client.fetch(REQUEST)) for _ in range(20)))

    assert {document.body for document in fetched} == {DOCUMENT}
    assert issuing.authority.requests == 2


async def test_an_api_that_refuses_every_token_is_a_credential_fault_and_causes_few_requests_for_tokens(
    issuing: SimulatedApi, connect: Connect
) -> None:
    async with connect(issuing.url_template, QUICK, access=oauth2(issuing.token_url)) as client:
        await delivered(client.fetch(REQUEST))
        issuing.behave(token="another")

        results = await asyncio.gather(*(delivered(client.fetch(REQUEST)) for _ in range(50)), return_exceptions=True)

    assert {type(result) for result in results} == {CredentialFault}
    assert issuing.authority.requests <= 2


@pytest.mark.parametrize("down", ["503", "reset", "hang"])
async def test_while_the_authorization_server_is_unavailable_orders_fail_with_a_fault_of_their_own(
    issuing: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics, down: str
) -> None:
    issuing.behave(authority_down=down)
    limits = replace(QUICK, total=0.3, read=0.3)

    async with connect(issuing.url_template, limits, access=oauth2(issuing.token_url)) as client:
        results = await asyncio.gather(*(delivered(client.fetch(REQUEST)) for _ in range(50)), return_exceptions=True)
        requests = issuing.authority.requests
        issuing.behave(authority_down=None)
        await eventually(lambda: is_answered(client))

    assert {type(result) for result in results} == {TokenFault}
    assert not any(result.uses_attempt for result in results if isinstance(result, TokenFault))
    assert requests == 1
    assert counted(shared_metrics).keys() == {"2xx"}


async def is_answered(client: UpstreamClient) -> bool:
    try:
        await delivered(client.fetch_once(REQUEST))
    except TokenFault:
        return False
    return True


async def test_an_outage_of_the_authorization_server_that_ends_before_the_token_does_is_not_noticed(
    issuing: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics
) -> None:
    issuing.behave(token_lifetime=8.0)  # renewed in the fifth or sixth second, used until 7.6

    async with connect(issuing.url_template, access=oauth2(issuing.token_url)) as client:
        await delivered(client.fetch(REQUEST))
        issuing.behave(authority_down="503")
        await fetch_until(client, lambda: issuing.authority.requests == 2)
        issuing.behave(authority_down=None)
        await fetch_until(client, lambda: issuing.authority.requests == 3)

    assert issuing.authority.peak == 1
    assert counted(shared_metrics).keys() == {"2xx"}


async def fetch_until(client: UpstreamClient, condition: Callable[[], bool]) -> None:
    while not condition():
        await delivered(client.fetch(REQUEST))
        await asyncio.sleep(0.01)


async def test_a_client_that_the_authorization_server_refuses_is_a_credential_fault(
    issuing: SimulatedApi, connect: Connect
) -> None:
    issuing.behave(client="somebody:else")

    async with connect(issuing.url_template, QUICK, access=oauth2(issuing.token_url)) as client:
        with pytest.raises(TokenRefused, match="does not issue a token: HTTP 401") as fault:
            await delivered(client.fetch(REQUEST))

    assert not fault.value.uses_attempt
    assert SECRET not in str(fault.value)


async def test_cancelling_the_order_that_caused_it_does_not_cancel_the_request_for_a_token(
    issuing: SimulatedApi, connect: Connect
) -> None:
    issuing.behave(token_latency=0.2)

    async with connect(issuing.url_template, access=oauth2(issuing.token_url)) as client:
        first = asyncio.create_task(delivered(client.fetch(REQUEST)))
        second = asyncio.create_task(delivered(client.fetch(FetchRequest(OTHER))))
        await eventually(lambda: requested(issuing, 1))
        first.cancel()
        await second

        assert first.cancelled()
    assert issuing.authority.requests == 1


async def requested(api: SimulatedApi, times: int) -> bool:
    return api.authority.requests == times


async def test_closing_ends_a_request_for_a_token(issuing: SimulatedApi, connect: Connect) -> None:
    issuing.behave(authority_down="hang")

    async with asyncio.timeout(15):
        async with connect(issuing.url_template, access=oauth2(issuing.token_url)) as client:
            fetching = asyncio.create_task(delivered(client.fetch(REQUEST)))
            await eventually(lambda: requested(issuing, 1))
        ended = await asyncio.gather(fetching, return_exceptions=True)

    assert isinstance(ended[0], BaseException)


@asynccontextmanager
async def authority(answer: Callable[[int], bytes]) -> AsyncIterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """An authorization server that sends these responses by the number of the request, and records requests."""
    received: list[tuple[bytes, bytes]] = []

    async def note(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        received.append((head, await reader.readexactly(length)))
        writer.write(answer(len(received)))

    async with serving(note) as port:
        yield f"http://127.0.0.1:{port}/token", received


def issued(body: bytes) -> bytes:
    return http(body, "Content-Type: application/json", f"Content-Length: {len(body)}")


async def test_what_a_request_for_a_token_has(connect: Connect) -> None:
    asked_for = {"scope": "orders:read a/b", "parameters": "audience=https://shop.example"}

    async with (
        authority(lambda _: issued(b'{"access_token":"t1","token_type":"bearer","expires_in":"60"}')) as (
            url,
            received,
        ),
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, asked),
        connect(template, access=oauth2(url, **asked_for)) as client,
    ):
        await delivered(client.fetch(REQUEST))

    ((head, body),) = received
    encoded = base64.b64encode(b"shop%20client:s3cr3t%2F%2B%26%3D")
    assert b"Authorization: Basic " + encoded + b"\r\n" in head
    assert body == b"grant_type=client_credentials&scope=orders%3Aread+a%2Fb&audience=https%3A%2F%2Fshop.example"
    assert b"Authorization: Bearer t1\r\n" in asked[0]


async def test_a_refresh_token_is_exchanged_and_the_access_token_goes_into_the_header_that_is_named(
    connect: Connect,
) -> None:
    secrets = {**oauth2("").secrets, "refresh_token": secret("refresh", "Atzr|1/+=")}

    async with (
        authority(lambda _: issued(b'{"access_token":"Atza|t1","token_type":"bearer","expires_in":3600}')) as (
            url,
            received,
        ),
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, asked),
        connect(
            template,
            access=Access("oauth2", secrets, "x-amz-access-token", OAuth2(url, None, "body", "refresh_token")),
        ) as client,
    ):
        await delivered(client.fetch(REQUEST))

    ((head, body),) = received
    assert b"authorization" not in head.lower()
    assert body == (
        b"grant_type=refresh_token&refresh_token=Atzr%7C1%2F%2B%3D&client_id=shop+client&client_secret=s3cr3t%2F%2B%26%3D"
    )
    assert b"x-amz-access-token: Atza|t1\r\n" in asked[0]
    assert b"authorization" not in asked[0].lower()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (b'{"error": "invalid_client", "error_description": "s3cr3t"}', "HTTP 400 invalid_client$"),
        (b'{"error": "invalid_grant"}', "HTTP 400 invalid_grant. If the refresh token is no longer valid"),
        (b"<html>s3cr3t</html>", "HTTP 400. If the refresh token is no longer valid"),
        (b'{"error": "s3cr3t"}', "HTTP 400. If"),
        (b"[1]", "HTTP 400. If"),
    ],
)
async def test_a_declined_refresh_token_is_told_from_a_wrong_client(
    connect: Connect, answer: bytes, shown: str
) -> None:
    secrets = {**oauth2("").secrets, "refresh_token": secret("refresh", "r1")}
    declined = http(
        answer, "Content-Type: application/json", f"Content-Length: {len(answer)}", status="400 Bad Request"
    )

    async with (
        authority(lambda _: declined) as (url, _),
        connect(
            "http://127.0.0.1:1/{order_id}", access=Access("oauth2", secrets, oauth2=OAuth2(url, grant="refresh_token"))
        ) as client,
    ):
        with pytest.raises(TokenRefused, match=shown) as fault:
            await delivered(client.fetch(REQUEST))

    assert "s3cr3t" not in str(fault.value)
    assert "r1" not in str(fault.value)


async def test_a_public_client_sends_its_id_in_the_body(connect: Connect) -> None:
    secrets = {"client_id": secret("id", "keystring"), "refresh_token": secret("refresh", "r1")}

    async with (
        authority(lambda _: issued(b'{"access_token":"t1","token_type":"User Access Token"}')) as (url, received),
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, asked),
        connect(template, access=Access("oauth2", secrets, oauth2=OAuth2(url, grant="refresh_token"))) as client,
    ):
        await delivered(client.fetch(REQUEST))

    assert received[0][1] == b"grant_type=refresh_token&refresh_token=r1&client_id=keystring"
    assert b"Authorization: Bearer t1\r\n" in asked[0]


async def test_a_response_without_a_token_type_and_with_a_scope_in_commas_is_used(connect: Connect) -> None:
    shopify = b'{"access_token":"shpat_1","scope":"read_orders,read_all_orders","expires_in":86399}'

    async with (
        authority(lambda _: issued(shopify)) as (url, received),
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, asked),
        connect(
            template,
            access=Access("oauth2", oauth2("").secrets, "X-Shopify-Access-Token", OAuth2(url, client_auth="body")),
        ) as client,
    ):
        await delivered(client.fetch(REQUEST))

    assert received[0][1].startswith(b"grant_type=client_credentials&client_id=")
    assert b"X-Shopify-Access-Token: shpat_1\r\n" in asked[0]


@pytest.mark.parametrize(
    "answer",
    [
        issued(b"not json"),
        issued(b"[]"),
        issued(b'{"access_token": 7}'),
        issued(b'{"access_token": ""}'),
        issued(b'{"access_token": "a b"}'),
        issued(b'{"access_token": "a\\r\\nX-Evil: 1"}'),
        issued(b'{"access_token": "' + b"x" * 100_000 + b'"}'),
        issued(b'{"access_token": "t", "token_type": "mac"}'),
        issued(b"[" * 100_000),
        issued(b'"' + b"x" * 300_000 + b'"'),
        http(b"", "Content-Length: 0", status="204 No Content"),
        http(b"", "Location: /elsewhere", "Content-Length: 0", status="307 Temporary"),
        b"nonsense\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[-40:]),
)
async def test_a_useless_response_of_the_authorization_server_is_an_outage_and_nothing_is_sent_to_the_api(
    connect: Connect, answer: bytes
) -> None:
    async with (
        authority(lambda _: answer) as (url, received),
        answering(http(b"{}", "Content-Length: 2")) as (template, asked),
        connect(template, QUICK, access=oauth2(url)) as client,
    ):
        with pytest.raises((TokenFault, TokenRefused)) as fault:
            await delivered(client.fetch(REQUEST))

    assert asked == []
    assert len(received) == 1
    assert "Evil" not in str(fault.value)


@pytest.mark.parametrize("lifetime", [b"0", b"-5", b"null", b"true", b'"soon"', b"1e308", b"[]", b"0.001"])
async def test_no_lifetime_leads_to_a_request_for_a_token_with_each_order(connect: Connect, lifetime: bytes) -> None:
    async with (
        authority(lambda _: issued(b'{"access_token":"t1","expires_in":' + lifetime + b"}")) as (url, received),
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, _),
        connect(template, access=oauth2(url)) as client,
    ):
        for _order in range(50):
            await delivered(client.fetch(REQUEST))

    assert len(received) <= 3


async def test_the_client_secret_follows_no_redirect(connect: Connect) -> None:
    async with authority(lambda _: issued(b'{"access_token":"t1"}')) as (elsewhere, received_there):
        moved = http(b"", f"Location: {elsewhere}", "Content-Length: 0", status="307 Temporary")
        async with (
            authority(lambda _: moved) as (url, _),
            connect("http://127.0.0.1:1/{order_id}", LIMITS, access=oauth2(url)) as client,
        ):
            with pytest.raises(TokenFault, match="redirects are not followed"):
                await delivered(client.fetch(REQUEST))

    assert received_there == []
