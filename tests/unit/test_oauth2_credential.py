"""An access token that the API rejects is renewed once for all waiting requests."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from ingest.domain.errors import TokenFault
from ingest.upstream.access.oauth2 import OAuth2Credential
from ingest.upstream.access.token_request import NoToken, Token


class Server:
    """An authorization server, and the time.

    Attributes:
        now: monotonic seconds.
        requests: requests for tokens so far.
        answers: whether requests receive a response, or hang.
        failure: why there is no token, if there is none.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.requests = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: NoToken | None = None

    async def token(self) -> Token:
        self.requests += 1
        number = self.requests
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        return Token(f"t{number}", None)


@asynccontextmanager
async def credential_of(
    server: Server, draw: Callable[[float, float], float] = lambda low, _: low
) -> AsyncIterator[OAuth2Credential]:
    credential = OAuth2Credential(server.token, dict, clock=lambda: server.now, draw=draw)
    yield credential
    await credential.close()


def sent(headers: Mapping[str, str] | None) -> str | None:
    return headers["Authorization"].removeprefix("Bearer ") if headers is not None else None


def unavailable(after: float | None = None) -> NoToken:
    return NoToken("HTTP 503", after=after)


async def test_while_a_refused_token_is_replaced_only_the_order_that_it_refused_waits() -> None:
    server = Server()
    async with credential_of(server) as credential:
        refused = await credential.obtain()
        server.now += 60
        server.answers.clear()

        renewing = asyncio.create_task(credential.renew(refused))
        await asyncio.sleep(0)
        meanwhile = credential.headers
        server.answers.set()

        assert await renewing
        assert (sent(meanwhile), sent(credential.headers)) == ("t1", "t2")


async def test_a_refused_token_stays_in_use_while_there_is_no_other() -> None:
    server = Server()
    async with credential_of(server) as credential:
        refused = await credential.obtain()
        server.now += 60
        server.failure = unavailable()

        with pytest.raises(TokenFault):
            await credential.renew(refused)

        assert sent(credential.headers) == "t1"


async def test_a_late_refusal_of_a_token_that_was_replaced_requests_none() -> None:
    server = Server()
    async with credential_of(server) as credential:
        old = await credential.obtain()
        server.now += 60
        await credential.renew(old)

        assert await credential.renew(old)

    assert server.requests == 2


async def test_orders_that_are_always_refused_cause_fewer_and_fewer_requests_for_tokens() -> None:
    server = Server()
    async with credential_of(server) as credential:
        await credential.obtain()
        for _ in range(600):
            server.now += 1
            await credential.renew(await credential.obtain())

    assert server.requests <= 30


async def test_a_token_that_is_revoked_long_after_such_orders_is_replaced_at_once() -> None:
    server = Server()
    async with credential_of(server) as credential:
        for _ in range(100):
            await credential.renew(await credential.obtain())
            server.now += 1
        server.now += 600

        assert await credential.renew(await credential.obtain())


async def test_processes_that_are_told_to_wait_do_so_and_ask_again_one_after_the_other() -> None:
    server = Server()
    server.failure = unavailable(after=10.0)
    asked: list[int] = []
    async with AsyncExitStack() as stack:
        draws = [random.Random(seed).uniform for seed in range(20)]
        credentials = [await stack.enter_async_context(credential_of(server, draw)) for draw in draws]
        for _tenth in range(150):
            before = server.requests
            for credential in credentials:
                with suppress(TokenFault):
                    await credential.obtain()
            asked.append(server.requests - before)
            server.now += 0.1

    assert (asked[0], sum(asked[1:100]), sum(asked[100:])) == (20, 0, 20)
    assert max(asked[100:]) <= 5
