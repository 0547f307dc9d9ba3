"""The keys that can have signed a request. Signatures are compared in constant time."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ingest.api.webhooks.schemes import Claim, Kind, decode_base64, decode_hex

# The specification of Standard Webhooks requires 24 to 64.
_SHORTEST_STANDARD = 16
# Shorter secrets can be guessed from one signed request.
_SHORTEST = 8
_DECODE: dict[str, Callable[[str], bytes | None]] = {"text": str.encode, "hex": decode_hex, "base64": decode_base64}
_SYMMETRIC, _PRIVATE, _PUBLIC = "whsec_", "whsk_", "whpk_"


class Key(Protocol):
    """Something that a signature can be checked with."""

    def fits(self, claim: Claim, body: bytes) -> bool:
        """Whether one of the signatures is one of this body by this key."""


ParseKey = Callable[[str], Key]
"""Converts the text of a secret in its file to a key. The `ValueError` that it raises does not contain the secret."""


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A shared secret.

    Attributes:
        secret: Its bytes.
        algorithm: The hash function.
    """

    secret: bytes
    algorithm: str = "sha256"

    def fits(self, claim: Claim, body: bytes) -> bool:
        """As `Key`."""
        expected = hmac.digest(self.secret, claim.before + body + claim.after, self.algorithm)
        given = [signature for kind, signature in claim.signatures if kind is Kind.HMAC]
        return any(hmac.compare_digest(expected, signature) for signature in given)


class Ed25519Key:
    """The public half of a sender's key pair.

    Args:
        public: Its 32 bytes.
    """

    def __init__(self, public: bytes) -> None:
        # An optional package, which is only needed for such keys.
        from nacl.signing import VerifyKey  # noqa: PLC0415

        self._key = VerifyKey(public)

    def fits(self, claim: Claim, body: bytes) -> bool:
        """As `Key`."""
        signed = claim.before + body + claim.after
        return any(self._is_signature(given, signed) for kind, given in claim.signatures if kind is Kind.ED25519)

    def _is_signature(self, signature: bytes, signed: bytes) -> bool:
        from nacl.exceptions import BadSignatureError  # noqa: PLC0415

        try:
            self._key.verify(signed, signature)
        except (BadSignatureError, ValueError):  # ValueError: its length is wrong
            return False
        return True


def hmac_key(secret: str, encoding: str = "text", algorithm: str = "sha256") -> HmacKey:
    """A secret that is the key itself, or the key in hexadecimal or base64.

    Raises:
        ValueError: It is not valid.
    """
    key = _DECODE[encoding](secret)
    if key is None:
        raise ValueError(f"a secret is not {encoding}")
    if len(key) < _SHORTEST:
        raise ValueError(f"a secret is shorter than {_SHORTEST} bytes")
    return HmacKey(key, algorithm)


def standard_key(secret: str) -> Key:
    """A secret of Standard Webhooks: `whsec_` and base64, or `whpk_` and the public key.

    Raises:
        ValueError: It is not valid.
    """
    if secret.startswith(_PRIVATE):
        raise ValueError(
            f"a secret is a private key ({_PRIVATE}…), which only the sender may have: write its public key"
        )
    is_public = secret.startswith(_PUBLIC)
    decoded = decode_base64(secret.removeprefix(_PUBLIC if is_public else _SYMMETRIC))
    if decoded is None:
        raise ValueError(f"a secret is not {_SYMMETRIC} or {_PUBLIC} with base64 behind it")
    if not is_public:
        if len(decoded) < _SHORTEST_STANDARD:
            raise ValueError(f"a secret is shorter than {_SHORTEST_STANDARD} bytes")
        return HmacKey(decoded)
    if len(decoded) != 32:
        raise ValueError("a public key has not 32 bytes")
    try:
        return Ed25519Key(decoded)
    except ModuleNotFoundError:
        raise ValueError("a public key needs the extra `ed25519`, which is not installed") from None
