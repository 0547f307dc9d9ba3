"""Decides who is calling: admits requests by their API key, its scopes and its rate limit.

Every key that is presented is hashed and looked up by its digest, and no step depends on how much of it is right: wrong, revoked
and unknown keys are one case.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from multidict import MultiMapping

from ingest.api.admission.presented_key import NoKey, NotPresentable, presented_key
from ingest.api.admission.rate_limit import Bucket, SharedBuckets, Taken
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Scope
from ingest.domain.api_key import ApiKey, Denial, digest_of, has_valid_checksum
from ingest.domain.errors import ConfigError
from ingest.files.watch import CHECK_EVERY, WatchedFiles, watching
from ingest.operations.api_keys import SETTING, read_keys
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("api")
_CHALLENGE = 'Bearer realm="ingest"'


@dataclass(frozen=True, slots=True)
class _Known:
    """A key that is in force.

    Attributes:
        digest: SHA-256 of its text.
        caller: whom it admits.
        bucket: its rate limit.
    """

    digest: bytes
    caller: Caller
    bucket: Bucket | None


# No text has this digest.
_UNKNOWN = _Known(bytes(32), Caller("", frozenset()), None)


class KeyAccess:
    """Admits callers with a key.

    Args:
        keys: in force.
        buckets: of all processes.
        denied: counts refusals by reason.
        clock: monotonic seconds, the same for all processes.
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
        self._known: Mapping[bytes, _Known] = {}
        self.use(keys)

    def use(self, keys: Iterable[ApiKey]) -> None:
        """Put these keys in force, and no others."""
        keys = list(keys)
        buckets = self._buckets.of(keys)
        self._known = {key.digest: _Known(key.digest, self._caller(key), buckets.get(key.digest)) for key in keys}
        if not keys:
            _log.warning("no_api_keys", settings=SETTING)

    def admit(self, headers: MultiMapping[str], scope: Scope) -> Caller:
        """Return who is calling.

        Raises:
            Problem: 401 without a key in force, 403 without the scope, 429 over the key's rate limit.
        """
        try:
            text = presented_key(headers)
        except NoKey:
            raise self._unauthorized(Denial.NO_KEY, "this needs an API key", "") from None
        except NotPresentable as error:
            raise self._unauthorized(Denial.MALFORMED, str(error), "invalid_request") from None
        digest = digest_of(text)
        known = self._known.get(digest, _UNKNOWN)
        if not hmac.compare_digest(known.digest, digest):
            raise self._unknown(text)
        try:
            return self._permitted(known, scope)
        except Problem as problem:
            problem.key = known.caller.name
            raise

    def _permitted(self, known: _Known, scope: Scope) -> Caller:
        if scope not in known.caller.scopes:
            raise self._forbidden(scope)
        if known.bucket is None:
            return known.caller
        return self._within_limit(known.caller, known.bucket)

    def _within_limit(self, caller: Caller, bucket: Bucket) -> Caller:
        taken = bucket.take(self._clock())
        if not taken.is_admitted:
            raise self._limited(bucket, taken)
        return Caller(caller.name, caller.scopes, bucket.headers(taken), caller.check)

    def _caller(self, key: ApiKey) -> Caller:
        return Caller(key.name, key.scopes, check=partial(self._check, key.digest))

    def _check(self, digest: bytes, scope: Scope) -> None:
        known = self._known.get(digest)
        if known is None:
            raise self._unauthorized(Denial.UNKNOWN, "the API key has been revoked", "invalid_token")
        if scope not in known.caller.scopes:
            raise self._forbidden(scope)

    def _unknown(self, text: str) -> Problem:
        if has_valid_checksum(text):
            return self._unauthorized(Denial.UNKNOWN, "there is no such API key", "invalid_token")
        detail = "this is not an API key: a part is missing or mistyped"
        return self._unauthorized(Denial.MALFORMED, detail, "invalid_token")

    def _unauthorized(self, reason: Denial, detail: str, error: str) -> Problem:
        self._denied[reason].inc()
        challenge = f'{_CHALLENGE}, error="{error}"' if error else _CHALLENGE
        return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})

    def _forbidden(self, scope: Scope) -> Problem:
        self._denied[Denial.SCOPE].inc()
        challenge = f'{_CHALLENGE}, error="insufficient_scope", scope="{scope.value}"'
        detail = f"the key lacks the scope {scope.value}"
        return Problem(403, "missing_scope", detail, headers={"WWW-Authenticate": challenge}, scope=scope.value)

    def _limited(self, bucket: Bucket, taken: Taken) -> Problem:
        self._denied[Denial.RATE].inc()
        headers = {**dict(bucket.headers(taken)), "Retry-After": str(taken.seconds)}
        return Problem(429, "rate_limited", "the key is used more often than its rate limit allows", headers=headers)


@asynccontextmanager
async def open_access(
    path: Path, buckets: SharedBuckets, denied: Mapping[str, Counter], check_every: float = CHECK_EVERY
) -> AsyncIterator[KeyAccess]:
    """Admission by the keys of a file, which is reloaded when it changes. A file that cannot be used changes nothing.

    Raises:
        ConfigError: the file cannot be used, because a process must not start with keys that may have been revoked.
    """
    access = KeyAccess(await asyncio.to_thread(read_keys, path), buckets, denied)

    async def load() -> None:
        try:
            access.use(await asyncio.to_thread(read_keys, path))
        except ConfigError as error:
            raise ValueError(str(error)) from None

    async with watching([WatchedFiles(SETTING, [path], load)], check_every):
        yield access
