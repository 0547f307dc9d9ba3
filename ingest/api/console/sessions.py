"""Signs the sessions and messages that browsers keep in cookies, and the tokens of forms.

The server stores no sessions, but records those that have ended. A cookie is valid if its signature is, its session has not ended, and
its API key is in force. The secret is the same in all processes.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
IDLE = 3_600.0
"""Seconds without a request after which a session ends. An open page of live data sends requests."""
LONGEST = 12 * 3_600.0
"""Seconds after which a session ends in any case."""
UNCHECKED = 900.0
"""Seconds for which a cookie is accepted while Redis is unavailable, which has the record of ended sessions."""
# A cookie is sent again when the last request that it records is older.
_RENEWED_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """A login with an API key.

    Attributes:
        id: Random, for the tokens of its forms.
        key_id: The ID of the API key.
        began: Time of the login, Unix time.
        seen: Time of a recent request, Unix time.
    """

    id: str
    key_id: str
    began: float
    seen: float


class Sessions:
    """Makes and reads signed texts.

    Args:
        secret: The key of all signatures.
        clock: Unix time.
    """

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock

    def begin(self, key_id: str) -> Session:
        """Return a new session."""
        now = self._clock()
        return Session(secrets.token_urlsafe(16), key_id, now, now)

    def cookie_of(self, session: Session) -> str:
        """Return the text of the cookie."""
        return self.signed("session", session)

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None if the cookie is invalid or the session has expired."""
        session = self.verified("session", cookie, Session)
        if session is None:
            return None
        now = self._clock()
        is_alive = now - session.seen < IDLE and now - session.began < LONGEST
        return session if is_alive else None

    def renewed(self, session: Session) -> Session | None:
        """Return the session with the current time if its cookie should be sent again, else None."""
        now = self._clock()
        return replace(session, seen=now) if now - session.seen > _RENEWED_EVERY else None

    def is_recent(self, session: Session) -> bool:
        """Return whether the session is accepted while Redis is unavailable."""
        return self._clock() - session.seen < UNCHECKED

    def form_token(self, subject: str) -> str:
        """Return the token of the forms of a session or of a user."""
        return self._signature("form", subject.encode())

    def signed(self, purpose: str, value: object) -> str:
        """Return a value as a signed text, which is valid for this purpose only."""
        payload = _encoded(msgspec.json.encode(value))
        return f"{payload}.{self._signature(purpose, payload.encode())}"

    def verified(self, purpose: str, text: str, kind: type[_T]) -> _T | None:
        """Return the value of a signed text, or None if it is not valid."""
        payload, _, signature = text.partition(".")
        if not payload.isascii() or not hmac.compare_digest(
            self._signature(purpose, payload.encode()).encode(), signature.encode(errors="replace")
        ):
            return None
        try:
            return msgspec.json.decode(_decoded(payload), type=kind)
        except (msgspec.DecodeError, binascii.Error, ValueError):
            return None

    def _signature(self, purpose: str, data: bytes) -> str:
        return _encoded(hmac.digest(self._secret, purpose.encode() + b"\0" + data, hashlib.sha256))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
