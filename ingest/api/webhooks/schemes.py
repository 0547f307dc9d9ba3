"""The signature schemes, which read a claim from the headers of a request.

Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
Stripe: https://docs.stripe.com/webhooks#verify-manually

Shopify and WooCommerce sign only the body.
"""

import re
from base64 import b64decode
from binascii import unhexlify
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from multidict import MultiMapping

from ingest.api.webhooks.places import single

# Senders send one signature, or two while a secret is rotated.
_MOST_SIGNATURES = 10
_LONGEST_TEXT = 256
_DIGITS = re.compile(r"[0-9]{1,15}", re.ASCII)


class Kind(Enum):
    """The parts of a signature."""

    HMAC = "HMAC"
    ED25519 = "ed25519"


_STANDARD_VERSIONS = {"v1": Kind.HMAC, "v1a": Kind.ED25519}


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a request. It is not trusted before a signature is valid.

    Attributes:
        signatures: The signatures, of which at least one has to fit.
        before: The signed text before the body.
        after: The signed text after the body.
        timestamp: When it was signed in Unix time, or None if that is not signed.
    """

    signatures: tuple[tuple[Kind, bytes], ...]
    before: bytes = b""
    after: bytes = b""
    timestamp: float | None = None


class Scheme(Protocol):
    """How requests are signed."""

    @property
    def id_header(self) -> str:
        """The header whose value is signed as the ID of the event, or "" if there is none."""

    def claim(self, headers: MultiMapping[str]) -> Claim | None:
        """The claim of a request, or None if it is not signed in this way."""


class StandardScheme:
    """Standard Webhooks 1.0: `webhook-id`, `webhook-timestamp` and `webhook-signature`, or the same with `svix-`, as Svix names them."""

    id_headers = ("webhook-id", "svix-id")
    id_header = id_headers[0]

    def claim(self, headers: MultiMapping[str]) -> Claim | None:
        """Read the three headers, without signatures of unknown versions."""
        webhook_id = single(headers, *self.id_headers)
        timestamp = single(headers, "webhook-timestamp", "svix-timestamp")
        listed = single(headers, "webhook-signature", "svix-signature")
        if listed is None or timestamp is None or not _DIGITS.fullmatch(timestamp):
            return None
        # With a dot in the ID, a part of the body could pass for the timestamp.
        if webhook_id is None or not is_plain(webhook_id) or "." in webhook_id:
            return None
        signatures = []
        for item in listed.split()[:_MOST_SIGNATURES]:
            version, _, encoded = item.partition(",")
            value = decode_base64(encoded)
            if value is not None and (kind := _STANDARD_VERSIONS.get(version)):
                signatures.append((kind, value))
        return Claim(tuple(signatures), f"{webhook_id}.{timestamp}.".encode(), b"", float(timestamp))


class StripeScheme:
    """Stripe: `Stripe-Signature: t=…,v1=…,v1=…`."""

    id_header = ""

    def claim(self, headers: MultiMapping[str]) -> Claim | None:
        """Read the header, without other versions."""
        text = single(headers, "Stripe-Signature")
        items = [item.strip().partition("=") for item in (text or "").split(",")]
        times = [value for name, _, value in items if name == "t"]
        if len(times) != 1 or not _DIGITS.fullmatch(times[0]):
            return None
        encoded = [value for name, _, value in items if name == "v1"][:_MOST_SIGNATURES]
        signatures = tuple((Kind.HMAC, value) for value in map(decode_hex, encoded) if value is not None)
        return Claim(signatures, f"{times[0]}.".encode(), b"", float(times[0]))


@dataclass(frozen=True, slots=True)
class HeaderScheme:
    """One header with one HMAC of the body, or of a text with it.

    Attributes:
        names: The possible names of the header.
        decode: Decodes the text of the header to the signature.
        prefix: The prefix of that text.
        before: Template of the signed text before the body, with {timestamp} and {id}.
        after: The template of the signed text after the body.
        timestamp_header: Contains the timestamp, or "" if there is none.
        timestamp_divisor: Timestamps for each second.
        id_header: Contains the ID, or "" if there is none.
    """

    names: tuple[str, ...]
    decode: Callable[[str], bytes | None]
    prefix: str = ""
    before: str = ""
    after: str = ""
    timestamp_header: str = ""
    timestamp_divisor: int = 1
    id_header: str = ""

    def claim(self, headers: MultiMapping[str]) -> Claim | None:
        """Read the headers."""
        text = single(headers, *self.names)
        if text is None or not text.startswith(self.prefix):
            return None
        signature = self.decode(text[len(self.prefix) :].strip())
        timestamp = single(headers, self.timestamp_header) if self.timestamp_header else "0"
        signed_id = single(headers, self.id_header) if self.id_header else ""
        if signature is None or timestamp is None or signed_id is None:
            return None
        if not _DIGITS.fullmatch(timestamp) or not self._is_unambiguous(signed_id):
            return None
        return Claim(
            ((Kind.HMAC, signature),),
            _filled(self.before, timestamp, signed_id),
            _filled(self.after, timestamp, signed_id),
            float(timestamp) / self.timestamp_divisor if self.timestamp_header else None,
        )

    def _is_unambiguous(self, signed_id: str) -> bool:
        """Whether an ID contains no separator, so that a signed text cannot be read in two ways."""
        if not self.id_header:
            return True
        template = (self.before + self.after).replace("{timestamp}", "").replace("{id}", "")
        separators = {character for character in template if not character.isalnum()}
        return is_plain(signed_id) and not separators & set(signed_id)


def _filled(template: str, timestamp: str, signed_id: str) -> bytes:
    # Not `str.format`, which supports more than these two.
    return template.replace("{timestamp}", timestamp).replace("{id}", signed_id).encode()


def is_plain(text: str) -> bool:
    """Whether a text is short and printable ASCII."""
    return 0 < len(text) <= _LONGEST_TEXT and text.isascii() and text.isprintable()


def decode_base64(text: str) -> bytes | None:
    """The bytes of a base64 text, or None if it is invalid."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


def decode_hex(text: str) -> bytes | None:
    """The bytes of a hexadecimal text, or None if it is invalid."""
    try:
        return unhexlify(text)
    except ValueError:
        return None
