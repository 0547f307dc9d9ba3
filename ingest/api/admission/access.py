"""Admits requests by their API key, its scopes, its sources and its rate limit.

Every presented key is hashed and looked up by its digest. No step depends on how much of a wrong key is right, because wrong,
revoked and unknown keys are the same case.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from aiohttp import hdrs
from multidict import MultiMapping, istr

from ingest.api.admission.rate_limit import Bucket, SharedBuckets
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import ApiKey, Denial, Scope, digest_of, has_valid_checksum
from ingest.domain.errors import ConfigError
from ingest.files.watch import CHECK_EVERY, WatchedFiles, watching
from ingest.operations.api_keys import SETTING, read_keys
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("api")
_CHALLENGE = 'Bearer realm="ingest"'
_X_API_KEY = istr("X-API-Key")
# A key is 35 characters long. Much longer values are not even hashed.
_LONGEST = 256


class _NotPresented(Exception):
    """The headers contain no key that can be looked up. The message gives the reason without their values."""

    def __init__(self, detail: str, reason: Denial = Denial.MALFORMED, error: str = "invalid_request") -> None:
        super().__init__(detail)
        self.reason = reason
        self.error = error


class KeyAccess:
    """Admits callers with a key.

    Args:
        keys: The valid keys.
        buckets: The buckets of all processes.
        denied: Counts rejections by reason.
        clock: Monotonic seconds, the same for all processes.
    """

    def __init__(
        self,
        keys: Iterable[ApiKey],
        buckets: SharedBuckets,
        denied: Mapping[str, Counter],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buckets = buckets
        self._denied = denied
        self._clock = clock
        self._keys: Mapping[bytes, ApiKey] = {}
        self._by_id: Mapping[str, ApiKey] = {}
        self._limited: Mapping[bytes, Bucket] = {}
        self.use(keys)

    def use(self, keys: Iterable[ApiKey]) -> None:
        """Put these keys in force, and no others."""
        self._keys = {key.digest: key for key in keys}
        self._by_id = {key.key_id: key for key in self._keys.values()}
        self._limited = self._buckets.of(self._keys.values())
        if not self._keys:
            _log.warning("no_api_keys", settings=SETTING)

    def admit(self, headers: MultiMapping[str], scope: Scope, source: str | None) -> Caller:
        """Return who is calling.

        Raises:
            Problem: 401 without a key in force, 403 without the scope or the source, 429 over the key's rate limit.
        """
        try:
            text = _presented(headers)
        except _NotPresented as error:
            raise self._unauthorized(error.reason, str(error), error.error) from None
        key = self._keys.get(digest_of(text))
        if key is None:
            raise self._unknown(text)
        return self._admit(key, scope, source)

    def admit_key_id(self, key_id: str, scope: Scope) -> Caller | None:
        """Return the caller with a key that was presented before, by its ID. None if the key is no longer in force.

        Raises:
            Problem: 403 without the scope, 429 over the key's rate limit.
        """
        key = self._by_id.get(key_id)
        return None if key is None else self._admit(key, scope, None)

    def _admit(self, key: ApiKey, scope: Scope, source: str | None) -> Caller:
        try:
            self._check(key.digest, source, scope)
            check = partial(self._check, key.digest, source)
            return Caller(key.name, key.scopes, self._take(key), check, key.sources, key.key_id)
        except Problem as problem:
            problem.key = key.name
            raise

    def _take(self, key: ApiKey) -> tuple[tuple[str, str], ...]:
        """Count a request, and return the headers of its response."""
        bucket = self._limited.get(key.digest)
        if bucket is None:
            return ()
        taken = bucket.take(self._clock())
        headers = bucket.headers(taken)
        if not taken.is_admitted:
            self._denied[Denial.RATE].inc()
            detail = "the key is used more often than its rate limit allows"
            raise Problem(429, "rate_limited", detail, headers={**dict(headers), "Retry-After": str(taken.seconds)})
        return headers

    def _check(self, digest: bytes, source: str | None, scope: Scope) -> None:
        key = self._keys.get(digest)
        if key is None:
            raise self._unauthorized(Denial.UNKNOWN, "the API key has been revoked", "invalid_token")
        if scope not in key.scopes:
            self._denied[Denial.SCOPE].inc()
            challenge = f'{_CHALLENGE}, error="insufficient_scope", scope="{scope.value}"'
            detail = f"the key lacks the scope {scope.value}"
            raise Problem(403, "missing_scope", detail, headers={"WWW-Authenticate": challenge}, scope=scope.value)
        if source is not None and not key.permits(source):
            self._denied[Denial.SOURCE].inc()
            # The same for a source that does not exist, so that a limited key does not reveal the others.
            raise Problem(403, "missing_source", "the key is limited to other sources", source=source)

    def _unknown(self, text: str) -> Problem:
        if has_valid_checksum(text):
            return self._unauthorized(Denial.UNKNOWN, "there is no such API key", "invalid_token")
        detail = "this is not an API key: a part is missing or mistyped"
        return self._unauthorized(Denial.MALFORMED, detail, "invalid_token")

    def _unauthorized(self, reason: Denial, detail: str, error: str) -> Problem:
        self._denied[reason].inc()
        challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
        return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


def _presented(headers: MultiMapping[str]) -> str:
    """The text of the one key in `Authorization: Bearer KEY` (RFC 6750) or `X-API-Key: KEY`."""
    authorization = headers.getall(hdrs.AUTHORIZATION, ())
    given = [*authorization, *headers.getall(_X_API_KEY, ())]
    if len(given) > 1:
        raise _NotPresented("more than one header contains a key: send one of Authorization and X-API-Key")
    if not given:
        raise _NotPresented("this needs an API key", Denial.NO_KEY, "")
    text = given[0]
    if authorization:
        scheme, _, text = text.partition(" ")
        if scheme.lower() != "bearer":
            raise _NotPresented("the scheme of Authorization must be Bearer")
    key: str = text.strip(" \t")
    if not key or len(key) > _LONGEST or not key.isascii():
        raise _NotPresented("this is not an API key")
    return key


@asynccontextmanager
async def open_access(
    path: Path, buckets: SharedBuckets, denied: Mapping[str, Counter], check_every: float = CHECK_EVERY
) -> AsyncIterator[KeyAccess]:
    """Admission by the keys of a file, which is reloaded when it changes. A file that cannot be used changes nothing.

    Raises:
        ConfigError: The file cannot be used, because a process must not start with keys that may have been revoked.
    """
    access = KeyAccess(await asyncio.to_thread(read_keys, path), buckets, denied)

    async def load() -> None:
        try:
            access.use(await asyncio.to_thread(read_keys, path))
        except ConfigError as error:
            raise ValueError(str(error)) from None

    async with watching([WatchedFiles(SETTING, [path], load)], check_every):
        yield access
