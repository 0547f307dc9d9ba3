"""An access token for a refresh token, shared by all processes of a source.

Many authorization servers replace the refresh token with each use. Losing the new one would lock the source out, so one process at a time
refreshes, in this order:

1. It locks the store, and reads it again, because another process may have just refreshed.
2. It stores a mark. This proves that the store can be written before the server replaces the refresh token.
3. It sends the request.
4. It stores the response before anything else. No request uses the new access token earlier, because some servers invalidate the old
   refresh token when the new tokens are first used.

If the process dies between 3 and 4, the next process sends the same refresh token again, a second later. Most servers accept it until the
new tokens are used, or for some seconds. If the store is unavailable at 4, the process keeps the response in memory until it can be stored.
The second gives it time for that, because its lock ends with its connection.
The refresh token before the current one is kept, and tried if the server declines the current one.
"""

import asyncio
import hashlib
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from ingest.domain.errors import TokenRefused
from ingest.domain.fetch.token_store import HeldStore, Stored, TokenStore, TokenStoreUnavailable
from ingest.telemetry.logs import get_logger
from ingest.upstream.access.sealing import CannotOpen, Sealing
from ingest.upstream.access.token_memory import TokenMemory
from ingest.upstream.access.token_request import NoToken, Token

_log = get_logger("upstream")

# A stored access token is not used in this last share of its life. A process that starts then would soon need another one.
_UNUSED_SHARE = 0.1
# Seconds between two looks at the store while another process refreshes: they grow from the first to the last.
_PAUSES = (0.05, 0.1, 0.2, 0.4, *[0.8] * 16)
# Seconds between two tries to store a response.
_STORE_PAUSE = 0.1
# Seconds for which a process leaves the mark of another one alone that no longer holds the lock.
_SETTLES = 1.0
# Configured refresh tokens whose fingerprints are kept.
_MOST_SEEDS = 50


class TokenState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored tokens. Times are Unix times by the clock of the store.

    Attributes:
        refresh_token: the current one.
        seeds: fingerprints of the configured refresh tokens that were used, the latest last. A process with an older configuration
            must not go back to one of them.
        previous: the refresh token before the current one.
        access_token: the current one.
        issued_at: when it was requested.
        expires_at: its end, if the server has sent it.
        requested_at: the time of the first request whose response was not stored. None after a response was stored.
        mark: identifies the last mark.
    """

    refresh_token: str
    seeds: tuple[str, ...]
    previous: str | None = None
    access_token: str | None = None
    issued_at: float = 0.0
    expires_at: float | None = None
    requested_at: float | None = None
    mark: str = ""


class SharedToken:
    """The source of access tokens for one process.

    Args:
        request: requests an access token for a refresh token, or raises `NoToken`.
        seed: returns the configured refresh token.
        store: shared by all processes.
        sealing: encrypts the content of the store.
        draw: a uniform random number between its arguments.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        request: Callable[[str], Awaitable[Token]],
        seed: Callable[[], str],
        store: TokenStore,
        sealing: Sealing,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._request = request
        self._seed = seed
        self._store = store
        self._sealing = sealing
        self._draw = draw
        self._last: str | None = None
        self._own_mark = ""
        # The last mark of another process that did not hold the lock, and when this process has first seen it.
        self._other_mark, self._seen_at = "", 0.0
        # A response that could not be stored, with the refresh token that it was for.
        self._unstored: tuple[str, TokenState] | None = None

    async def token(self) -> Token:
        """Return another access token than at the last call.

        Raises:
            NoToken: there is none.
        """
        try:
            return await self._other_token()
        except TokenStoreUnavailable as error:
            raise NoToken(f"no access token: the stored tokens cannot be used: {error}") from error
        except CannotOpen as error:
            raise NoToken(f"no access token: the stored tokens cannot be read: {error}", TokenRefused) from error

    async def _other_token(self) -> Token:
        for pause in _PAUSES:
            if self._unstored is None and (token := self._usable(await self._store.read())) is not None:
                return token
            try:
                async with self._store.lock() as held:
                    if held is not None and self._unstored is not None:
                        await self._store_the_unstored(held)
                    elif held is not None and self._is_settled(self._state_of(held.stored)):
                        return await self._replaced(held)
            except TokenStoreUnavailable:
                if self._unstored is None:
                    raise
            await asyncio.sleep(self._draw(0.5, 1.0) * (pause if self._unstored is None else _STORE_PAUSE))
        if self._unstored is not None:
            raise TokenStoreUnavailable("the response of the authorization server cannot be stored")
        raise NoToken("no access token: another process has been refreshing it for too long")

    def _is_settled(self, state: TokenState) -> bool:
        """Return whether the process that has left a mark has had the time to store its response."""
        if state.requested_at is None or state.mark == self._own_mark:
            return True
        if state.mark != self._other_mark:
            self._other_mark, self._seen_at = state.mark, self._clock()
        return self._clock() - self._seen_at >= _SETTLES

    def _usable(self, stored: Stored) -> Token | None:
        """Return the stored token, unless it was the last one, or is about to expire, or is for an earlier configuration."""
        state = self._state_of(stored)
        if state.access_token is None or state.access_token == self._last:
            return None
        left = None
        if state.expires_at is not None:
            left = state.expires_at - stored.now
            if left <= _UNUSED_SHARE * (state.expires_at - state.issued_at):
                return None
        self._last = state.access_token
        return Token(state.access_token, left, age=max(0.0, stored.now - state.issued_at))

    async def _replaced(self, held: HeldStore) -> Token:
        """Refresh the access token, and store the response before it is used."""
        if (token := self._usable(held.stored)) is not None:
            return token
        state = self._state_of(held.stored)
        used, token = await self._exchanged(held, state)
        refresh = token.refresh_token or used
        now = held.stored.now  # before the request, so that the token counts as older than it is
        new = TokenState(
            refresh_token=refresh,
            seeds=state.seeds,
            previous=used if refresh != used else state.previous,
            access_token=token.value,
            issued_at=now,
            expires_at=None if token.lifetime is None else now + token.lifetime,
        )
        self._unstored = (state.refresh_token, new)
        await self._store_the_unstored(held)
        if refresh != used and isinstance(self._store, TokenMemory):
            _log.error("refresh_token_not_stored")
        self._last = token.value
        return token

    async def _exchanged(self, held: HeldStore, state: TokenState) -> tuple[str, Token]:
        """Request a token for the current refresh token, or else for the previous one. Return which one was used."""
        self._own_mark = secrets.token_hex(8)
        marked = msgspec.structs.replace(state, requested_at=state.requested_at or held.stored.now, mark=self._own_mark)
        declined: NoToken | None = None
        for refresh_token in filter(None, (state.refresh_token, state.previous)):
            await held.mark(self._sealed(marked))
            try:
                return refresh_token, await self._request(refresh_token)
            except NoToken as error:
                if not error.is_declined:
                    raise
                declined = declined or error
        raise _locked_out(declined, state.requested_at)

    async def _store_the_unstored(self, held: HeldStore) -> None:
        if self._unstored is None:
            return
        used, new = self._unstored
        # Not if another process has stored later tokens, after this process had lost the lock.
        if self._state_of(held.stored).refresh_token == used:
            await held.put(self._sealed(new))
        self._unstored = None

    def _state_of(self, stored: Stored) -> TokenState:
        seed = self._seed()
        fingerprint = hashlib.sha256(seed.encode()).hexdigest()[:32]
        if stored.content is None:
            return TokenState(seed, (fingerprint,))
        try:
            state = msgspec.json.decode(self._sealing.opened(stored.content), type=TokenState)
        except msgspec.DecodeError:
            raise CannotOpen("they are damaged. Remove them to begin again with the configured refresh token") from None
        if fingerprint in state.seeds:
            return state
        # The operator has authorized the application again.
        return TokenState(seed, (*state.seeds, fingerprint)[-_MOST_SEEDS:], previous=state.refresh_token)

    def _sealed(self, state: TokenState) -> bytes:
        return self._sealing.sealed(msgspec.json.encode(state))


def _locked_out(declined: NoToken | None, requested_at: float | None) -> NoToken:
    text = f"{declined}. If the refresh token is no longer valid, authorize the application again, and configure the new one"
    if requested_at is not None:
        since = datetime.fromtimestamp(requested_at, UTC).isoformat(timespec="seconds")
        text += f". The response to a request since {since} was not stored, and it may have replaced the refresh token"
    return NoToken(text, TokenRefused)
