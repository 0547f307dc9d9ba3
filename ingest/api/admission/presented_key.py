"""The key that a request presents: `Authorization: Bearer KEY` (RFC 6750) or `X-API-Key: KEY`, exactly one of them."""

from aiohttp import hdrs
from multidict import MultiMapping, istr

_X_API_KEY = istr("X-API-Key")
# A key is 35 characters long. Much longer values are not even hashed.
_LONGEST = 256


class NoKey(Exception):
    """The request has none."""


class NotPresentable(Exception):
    """The headers contain no key. The message gives the reason without their values."""


def presented_key(headers: MultiMapping[str]) -> str:
    """Return the key, which may be any text.

    Raises:
        NoKey: there is none.
        NotPresentable: there are several, or the value is not a key.
    """
    authorization = headers.getall(hdrs.AUTHORIZATION, ())
    own = headers.getall(_X_API_KEY, ())
    if len(authorization) + len(own) > 1:
        raise NotPresentable("more than one header contains a key: send one of Authorization and X-API-Key")
    if own:
        return _checked(own[0])
    if not authorization:
        raise NoKey
    scheme, _, key = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise NotPresentable("the scheme of Authorization must be Bearer")
    return _checked(key)


def _checked(text: str) -> str:
    key = text.strip(" \t")
    if not key or len(key) > _LONGEST or not key.isascii():
        raise NotPresentable("this is not an API key")
    return key
