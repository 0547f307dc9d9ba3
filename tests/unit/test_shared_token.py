"""A refresh token that changes with each use, with its refreshes, its writes, and responses that cannot be stored."""

import asyncio
import itertools
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import structlog
from support import eventually

from ingest.domain.errors import TokenFault, TokenRefused
from ingest.domain.fetch.token_store import Stored, TokenStoreUnavailable
from ingest.upstream.access.oauth2 import OAuth2Credential
from ingest.upstream.access.sealing import CannotOpen, Sealing, check_keys
from ingest.upstream.access.shared_token import SharedToken
from ingest.upstream.access.token_memory import TokenMemory
from ingest.upstream.access.token_request import NoToken, Token

KEYS = [b64encode(bytes([number]) * 32).decode() for number in range(3)]


class Server:
    """An authorization server that forgets a refresh token when it is used.

    Attributes:
        valid: the refresh token that it accepts.
        used: the refresh tokens of all requests.
        failure: raised instead of a response.
        lifetime: seconds of an access token.
    """

    def __init__(self) -> None:
        self.valid = "r0"
        self.used: list[str] = []
        self.failure: NoToken | None = None
        self.lifetime: float | None = 3600.0
        self.answers = asyncio.Event()
        self.answers.set()

    async def request(self, refresh_token: str) -> Token:
        self.used.append(refresh_token)
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        if refresh_token != self.valid:
            raise NoToken("the authorization server does not issue a token: HTTP 400", TokenRefused, is_declined=True)
        number = len(self.used)
        self.valid = f"r{number}"
        return Token(f"a{number}", self.lifetime, self.valid)


class SharedStore:
    """A store that several processes share, in memory."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.now = 1_000.0
        self.failing: set[str] = set()
        self.is_locked = False
        self.steps: list[str] = []

    @property
    def stored(self) -> Stored:
        return Stored(self.content, self.now)

    async def read(self) -> Stored:
        return self.stored

    @asynccontextmanager
    async def lock(self) -> AsyncIterator["SharedStore | None"]:
        if self.is_locked:
            yield None
            return
        self.is_locked = True
        try:
            yield self
        finally:
            self.is_locked = False

    async def mark(self, content: bytes) -> None:
        self._write("mark", content)

    async def put(self, content: bytes) -> None:
        self._write("put", content)

    def _write(self, step: str, content: bytes) -> None:
        if step in self.failing:
            raise TokenStoreUnavailable("PostgreSQL: it restarts")
        self.steps.append(step)
        self.content = content


def process(server: Server, store: SharedStore | TokenMemory, seed: str = "r0", keys: str = "") -> SharedToken:
    # Each look at the clock is half a second later, and nothing waits.
    clock = itertools.count(0.0, 0.5)
    return SharedToken(
        server.request,
        lambda: seed,
        store,
        Sealing(lambda: keys),
        draw=lambda _low, _high: 0.0,
        clock=lambda: next(clock),
    )


async def test_processes_share_one_access_token_and_the_next_one_is_for_the_new_refresh_token() -> None:
    server, store = Server(), SharedStore()
    one, two = process(server, store), process(server, store)

    first = [(await one.token()).value, (await two.token()).value]
    second = [(await two.token()).value, (await one.token()).value]

    assert (first, second) == (["a1", "a1"], ["a2", "a2"])
    assert server.used == ["r0", "r1"]
    assert store.steps == ["mark", "put"] * 2


async def test_a_shared_token_counts_as_old_as_it_is() -> None:
    server, store = Server(), SharedStore()
    await process(server, store).token()
    store.now += 600

    token = await process(server, store).token()

    assert (token.value, token.age, token.lifetime) == ("a1", 600.0, 3000.0)


async def test_a_process_that_starts_shortly_before_the_end_of_the_token_requests_another_one() -> None:
    server, store = Server(), SharedStore()
    await process(server, store).token()
    store.now += 3500

    assert (await process(server, store).token()).value == "a2"


async def test_a_process_waits_for_the_one_that_refreshes() -> None:
    server, store = Server(), SharedStore()
    server.answers.clear()

    first = asyncio.create_task(process(server, store).token())
    second = asyncio.create_task(process(server, store).token())
    await asyncio.sleep(0)
    server.answers.set()

    assert {(await first).value, (await second).value} == {"a1"}
    assert server.used == ["r0"]


async def test_nothing_is_requested_while_the_store_cannot_be_written() -> None:
    server, store = Server(), SharedStore()
    store.failing = {"mark"}

    with pytest.raises(NoToken, match="cannot be used: PostgreSQL: it restarts") as failure:
        await process(server, store).token()

    assert isinstance(failure.value.fault(), TokenFault)
    assert server.used == []


async def test_a_response_that_cannot_be_stored_is_kept_and_used_after_it_was_stored() -> None:
    server, store = Server(), SharedStore()
    one = process(server, store)
    store.failing = {"put"}
    for _ in range(2):
        with pytest.raises(NoToken):
            await one.token()

    store.failing = set()

    assert (await one.token()).value == (await process(server, store).token()).value == "a1"
    assert server.used == ["r0"]


async def test_a_kept_response_gives_way_to_a_later_one_that_another_process_has_stored() -> None:
    server, store = Server(), SharedStore()
    one, two = process(server, store), process(server, store)
    store.failing = {"put"}
    with pytest.raises(NoToken):
        await one.token()
    store.failing = set()
    server.valid = "r0"  # the server accepts it again within a grace period
    await two.token()

    assert (await one.token()).value == "a2"
    assert (await one.token()).value == "a3"
    assert server.used == ["r0", "r0", "r2"]


async def test_a_process_that_has_lost_its_lock_has_a_second_to_store_its_response() -> None:
    server, store = Server(), SharedStore()
    one, two = process(server, store), process(server, store)
    store.failing = {"put"}
    with pytest.raises(NoToken):
        await one.token()  # it has the only valid refresh token, and no lock

    waiting = asyncio.create_task(two.token())
    await asyncio.sleep(0)
    store.failing = set()

    assert (await one.token()).value == (await waiting).value == "a1"
    assert server.used == ["r0"]


async def test_a_new_configured_token_is_used_once_and_an_earlier_one_never_again() -> None:
    server, store = Server(), SharedStore()
    await process(server, store).token()
    server.valid = "n0"  # the operator has authorized the application again

    assert (await process(server, store, "n0").token()).value == "a2"
    # A process that has not read the new configuration yet.
    old = process(server, store, "r0")
    assert (await old.token()).value == "a2"
    assert (await old.token()).value == "a3"
    assert server.used == ["r0", "n0", "r2"]


async def test_the_previous_token_is_tried_if_the_current_one_is_declined() -> None:
    server, store = Server(), SharedStore()
    one = process(server, store)
    await one.token()
    await one.token()
    server.valid = "r1"  # the server has lost its last commit

    assert (await one.token()).value == "a4"
    assert server.used == ["r0", "r1", "r2", "r1"]


async def test_a_declined_token_is_an_operators_problem_and_an_interrupted_request_is_named() -> None:
    server, store = Server(), SharedStore()
    store.failing = {"put"}
    with pytest.raises(NoToken):
        await process(server, store).token()  # ends here
    store.failing = set()

    with pytest.raises(NoToken, match=r"1970-01-01T00:16:40\+00:00 was not stored") as failure:
        await process(server, store).token()

    assert isinstance(failure.value.fault(), TokenRefused)
    assert "r0" not in str(failure.value)


async def test_an_outage_of_the_server_does_not_try_the_previous_token() -> None:
    server, store = Server(), SharedStore()
    one = process(server, store)
    await one.token()
    server.failure = NoToken("HTTP 503")

    with pytest.raises(NoToken, match="HTTP 503"):
        await one.token()

    assert server.used == ["r0", "r1"]


async def test_a_replaced_token_without_a_shared_store_is_used_and_reported() -> None:
    server = Server()
    one = process(server, TokenMemory(lambda: datetime.now(UTC)))

    with structlog.testing.capture_logs() as logs:
        assert [(await one.token()).value for _ in range(2)] == ["a1", "a2"]

    assert [(line["event"], line["log_level"]) for line in logs] == [("refresh_token_not_stored", "error")] * 2


async def test_a_process_that_stops_waits_for_a_response_with_a_refresh_token() -> None:
    server, store = Server(), SharedStore()
    server.answers.clear()
    credential = OAuth2Credential(process(server, store).token, dict, finish=10.0)
    obtaining = asyncio.create_task(credential.obtain())
    await eventually(lambda: server.used)

    closing = asyncio.create_task(credential.close())
    await asyncio.sleep(0)
    server.answers.set()
    await closing

    await obtaining
    assert store.steps == ["mark", "put"]


async def test_stored_tokens_are_encrypted_and_a_key_can_be_replaced() -> None:
    server, store = Server(), SharedStore()
    await process(server, store, keys=KEYS[0]).token()
    assert store.content is not None
    assert b"r1" not in store.content
    assert b"a1" not in store.content

    rotated = process(server, store, keys=f"# new, then old\n{KEYS[1]}\n\n{KEYS[0]}")
    assert [(await rotated.token()).value for _ in range(2)] == ["a1", "a2"]

    assert (await process(server, store, keys=KEYS[1]).token()).value == "a2"
    with pytest.raises(NoToken, match="encrypted with another key") as failure:
        await process(server, store, keys=KEYS[2]).token()
    assert isinstance(failure.value.fault(), TokenRefused)
    with pytest.raises(NoToken, match="no key is configured"):
        await process(server, store).token()


def test_a_content_that_is_not_encrypted_is_read_in_a_file_only() -> None:
    assert Sealing(lambda: KEYS[0]).opened(b"{}") == b"{}"
    with pytest.raises(CannotOpen):
        Sealing(lambda: KEYS[0], accepts_plain=False).opened(b"{}")


@pytest.mark.parametrize("damaged", [b"{}", b"[1]", b"{", b"1:x", b'{"refresh_token": 1, "seeds": []}'])
async def test_a_damaged_content_is_reported(damaged: bytes) -> None:
    server, store = Server(), SharedStore()
    store.content = damaged

    with pytest.raises(NoToken, match="cannot be read"):
        await process(server, store, keys=KEYS[0] if damaged == b"1:x" else "").token()

    assert server.used == []


@pytest.mark.parametrize("text", ["", "# a comment\n", "c2hvcnQ=", "not base64", f"{KEYS[0]}\nx"])
def test_keys_that_cannot_be_used_are_rejected_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"contains no key|is not 32 bytes in base64") as error:
        check_keys(text)

    assert text == "" or text not in str(error.value)
