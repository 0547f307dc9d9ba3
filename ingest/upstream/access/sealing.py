"""Encrypts stored tokens with a key of the operator (XSalsa20-Poly1305, by libsodium).

Several keys allow a key to be replaced: the first one encrypts, and each of them decrypts.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence

_KEY_BYTES = 32
# A plain content is a JSON object. The bytes before an encrypted content name its format.
_SEALED = b"1:"


class CannotOpen(Exception):
    """The content cannot be decrypted. Only an operator can help."""


class Sealing:
    """Encrypts and decrypts.

    Args:
        keys: returns the current text of the keys, or an empty text for no encryption.
        accepts_plain: whether a content that is not encrypted is read although there are keys. It is encrypted when it is next stored.
    """

    def __init__(self, keys: Callable[[], str], *, accepts_plain: bool = True) -> None:
        self._keys = keys
        self._accepts_plain = accepts_plain

    def sealed(self, content: bytes) -> bytes:
        """Return the content as it is stored."""
        keys = parse_keys(self._keys())
        if not keys:
            return content
        from nacl.secret import SecretBox  # noqa: PLC0415  an optional package, which only stored tokens need

        return _SEALED + bytes(SecretBox(keys[0]).encrypt(content))

    def opened(self, stored: bytes) -> bytes:
        """Return the content.

        Raises:
            CannotOpen: with advice in the message.
        """
        keys = parse_keys(self._keys())
        if not stored.startswith(_SEALED):
            if keys and not self._accepts_plain:
                raise CannotOpen("they are not encrypted")
            return stored
        if not keys:
            raise CannotOpen("they are encrypted, and no key is configured")
        from nacl.exceptions import CryptoError  # noqa: PLC0415  as above
        from nacl.secret import SecretBox  # noqa: PLC0415

        for key in keys:
            try:
                return bytes(SecretBox(key).decrypt(stored.removeprefix(_SEALED)))
            except (CryptoError, ValueError):  # ValueError: it is too short
                continue
        raise CannotOpen("they were encrypted with another key")


def check_keys(text: str) -> str:
    """Return the text of the keys.

    Raises:
        ValueError: it contains no key, or a key is invalid, or the package that uses it is missing.
    """
    if not parse_keys(text):
        raise ValueError("contains no key")
    try:
        import nacl.secret  # noqa: F401, PLC0415  as above
    except ModuleNotFoundError:
        raise ValueError(
            "needs the extra `credentials` of order-ingest (the package PyNaCl), which is not installed"
        ) from None
    return text


def parse_keys(text: str) -> Sequence[bytes]:
    """Return the keys in a text with one key per line, except empty lines and comments (`# …`).

    Raises:
        ValueError: a key is invalid. The message does not contain it.
    """
    lines = [line.strip() for line in text.splitlines()]
    return [_key(line) for line in lines if line and not line.startswith("#")]


def _key(line: str) -> bytes:
    try:
        key = b64decode(line, validate=True)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError(f"a key is not {_KEY_BYTES} bytes in base64, such as from `openssl rand -base64 {_KEY_BYTES}`")
    return key
