"""The console over real HTTP: who gets in, and which requests change something."""

import hashlib
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import ClientResponse, ClientSession, CookieJar
from http_api import NOWHERE, Api, Serve, running_api

from ingest.api.admission.access import KeyAccess
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.api.console import sessions
from ingest.api.console.sessions import Session, Sessions
from ingest.api.console.visitors import SESSION_COOKIE
from ingest.domain.api_key import ApiKey, Denial, Scope, digest_of, make_key
from ingest.telemetry.shared_metrics import Counter

TEXT = make_key(b"operator" * 2)
KEY = ApiKey("ada", digest_of(TEXT), frozenset({Scope.READ, Scope.OPERATE}))
SECRET = "a secret of several processes on several hosts"
EVENTS = "/console/events/overview"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def access() -> KeyAccess:
    cells = memoryview(bytearray(8 * len(Denial))).cast("d")
    denied = {reason.value: Counter(cells, at) for at, reason in enumerate(Denial)}
    return KeyAccess([KEY], SharedBuckets(), denied)


@pytest.fixture
async def api(serve: Serve, access: KeyAccess) -> AsyncIterator[Api]:
    # A client keeps no cookies of an address by default.
    async with serve(access) as api, ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        yield replace(api, http=http)


async def get(api: Api, path: str, **options: object) -> tuple[ClientResponse, str]:
    async with api.http.get(api.url + path, allow_redirects=False, **options) as response:  # type: ignore[arg-type]
        return response, await response.text()


async def post(
    api: Api, path: str, fields: Mapping[str, str], headers: Mapping[str, str] = SAME_ORIGIN
) -> tuple[ClientResponse, str]:
    async with api.http.post(api.url + path, data=fields, headers=headers, allow_redirects=False) as response:
        return response, await response.text()


async def log_in(api: Api) -> str:
    """Log in, and return the token of forms."""
    await session_cookie(api)
    _, page = await get(api, "/console/")
    return token_in(page)


async def session_cookie(api: Api) -> str:
    """Log in, and return the cookie as a browser sends it."""
    response, _ = await post(api, "/console/login", {"key": TEXT})
    assert (response.status, response.headers["Location"]) == (303, "/console/")
    return response.headers["Set-Cookie"].split(";")[0]


def token_in(page: str) -> str:
    """The token of a page's forms."""
    found = re.search('name="token" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def test_a_page_without_a_session_leads_to_the_login_and_back(api: Api) -> None:
    first, _ = await get(api, "/console/?source=shop-de")
    back, _ = await post(api, "/console/login", {"key": TEXT, "next": "/?source=shop-de"})

    assert first.headers["Location"] == "/console/login?next=%2F%3Fsource%3Dshop-de"
    assert back.headers["Location"] == "/console/?source=shop-de"


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "\\\\evil.example", "javascript:x", "/\r\nx: y"]
)
async def test_a_login_never_leads_to_another_site(api: Api, target: str) -> None:
    response, _ = await post(api, "/console/login", {"key": TEXT, "next": target})

    assert response.headers["Location"] == "/console/"


async def test_the_cookie_of_a_session_is_out_of_reach_for_scripts_and_other_sites(api: Api) -> None:
    response, _ = await post(api, "/console/login", {"key": TEXT})
    behind_tls, _ = await post(api, "/console/login", {"key": TEXT}, {"X-Forwarded-Proto": "https"})

    cookie = response.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/console/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert "Secure" in behind_tls.headers["Set-Cookie"].split("; ")
    assert TEXT not in cookie


async def test_every_page_has_the_policy_and_is_not_stored(api: Api) -> None:
    responses = [await get(api, "/console/login")]
    await log_in(api)
    responses += [await get(api, "/console/"), await get(api, "/console/none")]

    for (response, page), status in zip(responses, (200, 200, 404), strict=True):
        assert response.status == status, page
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(r"<script(?! src=)|<style|\son\w+=|\sstyle=", page)


async def test_an_invalid_key_gets_no_session_and_is_not_repeated(api: Api) -> None:
    response, page = await post(api, "/console/login", {"key": TEXT[:-1]})

    assert response.status == 401
    assert "Set-Cookie" not in response.headers
    assert TEXT[:-1] not in page


async def test_a_session_ends_when_its_key_is_revoked_or_loses_the_scope(api: Api, access: KeyAccess) -> None:
    await log_in(api)

    access.use([replace(KEY, scopes=frozenset({Scope.ENQUEUE}))])
    without_scope, _ = await get(api, "/console/")
    access.use([])
    revoked, _ = await get(api, "/console/")

    assert (without_scope.status, revoked.status) == (403, 303)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_a_form_of_another_site_is_rejected_even_with_the_token(api: Api, headers: Mapping[str, str]) -> None:
    token = await log_in(api)

    response, _ = await post(api, "/console/theme", {"token": token, "theme": "dark"}, headers)

    assert response.status == 403
    assert "Set-Cookie" not in response.headers


async def test_a_form_needs_the_token_of_its_session(api: Api) -> None:
    earlier = await log_in(api)
    token = await log_in(api)

    statuses = [
        (await post(api, "/console/theme", {"theme": "dark", **fields}))[0].status
        for fields in ({}, {"token": ""}, {"token": earlier}, {"token": token})
    ]

    assert statuses == [403, 403, 403, 303]


async def test_a_logout_removes_the_cookie(api: Api) -> None:
    token = await log_in(api)

    await post(api, "/console/logout", {"token": token})
    response, _ = await get(api, "/console/")

    assert response.status == 303


async def test_an_ended_session_is_rejected_by_every_process_and_its_live_data_ends(
    serve: Serve, access: KeyAccess
) -> None:
    shared = {"console_secret": SECRET}
    async with serve(access, **shared) as first, serve(access, **shared) as second, ClientSession() as http:
        api, other = replace(first, http=http), replace(second, http=http)
        copied = {"Cookie": await session_cookie(api)}
        before, page = await get(other, "/console/", headers=copied)
        async with http.get(f"{other.url}/console/events/overview", headers=copied) as live:
            await live.content.readuntil(b"\n\n")
            logout, _ = await post(api, "/console/logout", {"token": token_in(page)}, {**SAME_ORIGIN, **copied})
            await live.content.read()
        after = [(await get(each, path, headers=copied))[0] for each in (api, other) for path in ("/console/", EVENTS)]
        new, _ = await get(other, "/console/", headers={"Cookie": await session_cookie(api)})

    assert (before.status, logout.status, logout.headers["Location"]) == (200, 303, "/console/login")
    assert [response.status for response in after] == [303, 303] * 2
    assert new.status == 200


async def test_a_logout_that_cannot_be_recorded_reports_it_and_keeps_the_session(
    queue_name: str, access: KeyAccess
) -> None:
    async with running_api("redis://127.0.0.1:1/0", NOWHERE, queue_name, access) as api:
        cookie = {"Cookie": await session_cookie(api)}
        _, page = await get(api, "/console/help", headers=cookie)
        logout, problem = await post(api, "/console/logout", {"token": token_in(page)}, {**SAME_ORIGIN, **cookie})

    assert (logout.status, "session has not ended" in problem) == (503, True)
    assert "Set-Cookie" not in logout.headers


async def test_without_redis_only_a_recent_session_is_accepted_and_it_is_not_renewed(
    queue_name: str, access: KeyAccess
) -> None:
    now = time.time()
    ages = (0, sessions.UNCHECKED - 30, sessions.UNCHECKED + 1)
    async with running_api("redis://127.0.0.1:1/0", NOWHERE, queue_name, access, console_secret=SECRET) as api:
        signer = Sessions(hashlib.sha256(SECRET.encode()).digest())
        cookies = [signer.cookie_of(Session("id", KEY.key_id, now - age, now - age)) for age in ages]
        responses = [
            (await get(api, "/console/help", headers={"Cookie": f"{SESSION_COOKIE}={each}"}))[0] for each in cookies
        ]

    assert [response.status for response in responses] == [200, 200, 303]
    assert not any("Set-Cookie" in response.headers for response in responses)


async def test_a_session_expires_without_requests_and_after_half_a_day() -> None:
    now = 1_000_000.0
    signer = Sessions(b"secret", lambda: now)
    cookie = signer.cookie_of(signer.begin("key"))
    busy = Session("id", "key", now, now + sessions.LONGEST - 1)
    forged = Sessions(b"other").cookie_of(signer.begin("key"))

    assert signer.read(cookie) is not None
    assert signer.read(forged) is None
    assert signer.read(cookie.replace(".", "x.", 1)) is None
    now += sessions.LONGEST - 1
    assert signer.read(cookie) is None
    assert signer.read(signer.cookie_of(busy)) is not None
    now += 1
    assert signer.read(signer.cookie_of(busy)) is None


async def test_the_user_of_a_proxy_needs_no_login_and_has_the_configured_scopes(
    serve: Serve, access: KeyAccess
) -> None:
    settings = {"console_proxy_header": "X-User", "console_proxies": "127.0.0.0/8", "console_proxy_scopes": "read"}
    async with serve(access, **settings) as api:
        user, page = await get(api, "/console/", headers={"X-User": "ada@example.com"})
        nobody, _ = await get(api, "/console/")

    assert user.status == 200
    assert "proxy:ada@example.com" in page
    assert nobody.status == 401


async def test_the_header_of_a_proxy_is_ignored_from_other_addresses(serve: Serve, access: KeyAccess) -> None:
    async with serve(access, console_proxy_header="X-User", console_proxies="192.0.2.1, 2001:db8::/64") as api:
        response, _ = await get(api, "/console/", headers={"X-User": "ada@example.com"})

    assert response.status == 303


async def test_a_console_that_is_off_does_not_exist(serve: Serve, access: KeyAccess) -> None:
    async with serve(access, console="off") as api:
        response, _ = await get(api, "/console/login")

    assert (response.status, response.content_type) == (404, "application/problem+json")


async def test_an_unavailable_server_is_named_and_no_page_fails(queue_name: str) -> None:
    async with running_api("redis://127.0.0.1:1/0", NOWHERE, queue_name) as api:
        answers = [await get(api, f"/console/{page}") for page in ("", "sources", "sources/show", "workers", "help")]
        audit, problem = await get(api, "/console/audit")

    assert [response.status for response, _ in answers] == [200] * 5
    for _, page in answers[:4]:
        assert "Queue unavailable: redis" in page
        assert "Store unavailable: postgres" in page
    assert (audit.status, "database cannot be used" in problem) == (503, True)


@pytest.mark.parametrize("page", ["", "sources", "sources/show?source=b", "settings?all=1", "audit?source=b"])
async def test_a_key_that_is_limited_to_a_source_sees_nothing_of_the_others(
    serve: Serve, access: KeyAccess, tmp_path: Path, page: str
) -> None:
    tables = (f'[sources.{name}.upstream]\nurl = "https://{name}.example/{{order_id}}"\n' for name in ("a", "b"))
    (tmp_path / "sources.toml").write_text("\n".join(tables))
    access.use([replace(KEY, sources=frozenset({"a"}))])

    async with (
        serve(access, sources=str(tmp_path / "sources.toml")) as served,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as http,
    ):
        api = replace(served, http=http)
        await log_in(api)
        _, text = await get(api, f"/console/{page}")

    assert "b.example" not in text
    assert "source=b" not in text.replace("?source=b", "")


async def test_a_limited_key_does_not_change_the_rate_of_other_sources_that_share_a_quota(
    serve: Serve, access: KeyAccess, tmp_path: Path
) -> None:
    shared = 'upstream = { url = "https://erp.example/{order_id}", quota = "erp", rate = 10 }'
    tables = (f"[sources.{name}]\n{shared}\n" for name in ("a", "b"))
    (tmp_path / "sources.toml").write_text("\n".join(tables))
    access.use([replace(KEY, sources=frozenset({"a"}))])

    async with (
        serve(access, sources=str(tmp_path / "sources.toml")) as served,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as http,
    ):
        api = replace(served, http=http)
        token = await log_in(api)
        forms = [
            await post(api, f"/console/sources/{path}", {"token": token, "source": "a", "rate": "1"})
            for path in ("tune", "tune/reset")
        ]
        _, controls = await get(api, "/v1/sources/a/controls", headers={"X-API-Key": TEXT})

    assert [response.status for response, _ in forms] == [403, 403]
    assert '"limits":null' in controls


async def test_live_data_is_sent_as_events_until_the_key_is_revoked(api: Api, access: KeyAccess) -> None:
    await log_in(api)

    async with api.http.get(f"{api.url}/console/events/overview") as response:
        assert response.content_type == "text/event-stream"
        first = await response.content.readuntil(b"\n\n")
        access.use([])
        await response.content.read()

    assert b"data: " in first
    assert b"No worker is running" in first
