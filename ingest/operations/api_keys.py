"""The API keys in the file that the HTTP API reads. An operator can read and edit it: one JSON object per line.

    {"name": "shop", "sha256": "9f86…", "scopes": ["enqueue"], "rate": 100.0, "burst": 200, "created": "2026-11-22T12:00:00Z"}

The file contains only digests of keys. A key without `sources` may be used for all sources.
"""

import json
import math
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ingest.domain.api_key import (
    FASTEST,
    LARGEST_BURST,
    RANDOM_BYTES,
    SLOWEST,
    ApiKey,
    RateLimit,
    Scope,
    digest_of,
    is_key_name,
    make_key,
)
from ingest.domain.errors import ConfigError, UserError
from ingest.domain.source_name import InvalidSourceName, parse_source_name
from ingest.files.regular import NotRegular, open_regular
from ingest.files.replacement import SymbolicLink, locked_folder, replace_file

SETTING = "INGEST_API_KEYS_FILE"
MOST_KEYS = 2_000
_LARGEST = 1024 * 1024


class InvalidKeysFile(ConfigError):
    """The file cannot be used. The message contains the line number, but not the content of the line."""


class CannotChangeKeys(UserError):
    """The file cannot be written."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    sha256: str
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1)]
    rate: Annotated[float, msgspec.Meta(ge=SLOWEST, le=FASTEST)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_BURST)] | None = None
    created: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    sources: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None


def create(
    path: Path,
    name: str,
    scopes: Collection[Scope],
    limit: RateLimit | None,
    sources: Collection[str] | None = None,
) -> tuple[str, ApiKey]:
    """Create a key. Returns its text and its record, which does not contain the text.

    The caller shows the text to the user, or revokes the key if that fails. `sources` limits the key to these.
    """
    text = make_key(secrets.token_bytes(RANDOM_BYTES))
    created = datetime.now(UTC).replace(microsecond=0)
    permitted = frozenset(sources) if sources is not None else None
    key = ApiKey(name, digest_of(text), frozenset(scopes), limit, created, permitted)
    add_key(path, key)
    return text, key


def revoke(path: Path, names: Sequence[str]) -> tuple[list[ApiKey], list[str]]:
    """Remove keys by name or ID. Returns the removed keys and the names that were not found."""
    removed = remove_keys(path, names)
    known = {text for key in removed for text in (key.name, key.key_id)}
    return removed, [name for name in names if name not in known]


def as_object(key: ApiKey) -> dict[str, Any]:
    """Convert a key for JSON."""
    return {
        "name": key.name,
        "id": key.key_id,
        "scopes": [scope.value for scope in Scope if scope in key.scopes],
        "rate": key.limit.rate if key.limit else None,
        "burst": key.limit.burst if key.limit else None,
        "created": key.created.isoformat() if key.created else None,
        "sources": sorted(key.sources) if key.sources is not None else None,
    }


def limit_of(rate: float | None, burst: int | None) -> RateLimit | None:
    """Combine a rate and a burst. The default burst is the rate of one second.

    Raises:
        ValueError: a burst is given without a rate.
    """
    if rate is None:
        if burst is not None:
            raise ValueError("a burst needs a rate")
        return None
    return RateLimit(rate, burst or max(1, math.ceil(rate)))


def read_keys(path: Path) -> list[ApiKey]:
    """Read the keys of the file.

    Raises:
        InvalidKeysFile: the file cannot be read, or a line is invalid.
    """
    try:
        content = _read(path)
    except OSError as error:
        raise InvalidKeysFile(f"{SETTING}: cannot read {path}: {error.strerror}") from error
    return [key for key, _ in _parse(path, content)]


def add_key(path: Path, key: ApiKey) -> None:
    """Add a key, and create the file if it does not exist.

    Raises:
        InvalidKeysFile: the existing file is invalid.
        CannotChangeKeys: the file cannot be written, is full, or contains a key of this name.
    """
    with _changing(path) as (content, keys):
        if any(other.name == key.name for other, _ in keys):
            raise CannotChangeKeys(f"a key named {key.name} exists: choose another name, or revoke it first")
        if len(keys) >= MOST_KEYS:
            raise CannotChangeKeys(f"{path} contains {MOST_KEYS:,} keys, which is the maximum")
        before = content if not content or content.endswith(b"\n") else content + b"\n"
        replace_file(path, before + _line_of(key))


def remove_keys(path: Path, wanted: Sequence[str]) -> list[ApiKey]:
    """Remove keys by name or ID, and return them. Unknown names are ignored.

    Raises:
        InvalidKeysFile: the existing file is invalid.
        CannotChangeKeys: the file cannot be written.
    """
    with _changing(path) as (content, keys):
        found = {number: key for key, number in keys if key.name in wanted or key.key_id in wanted}
        if found:
            lines = content.splitlines(keepends=True)
            replace_file(path, b"".join(line for number, line in enumerate(lines, 1) if number not in found))
        return list(found.values())


def _parse(path: Path, content: bytes) -> list[tuple[ApiKey, int]]:
    """Return the keys with their line numbers."""
    found: list[tuple[ApiKey, int]] = []
    names: set[str] = set()
    digests: set[bytes] = set()
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if not line.strip():
            continue
        try:
            key = _key_of(line)
        except (ValueError, RecursionError, InvalidSourceName) as error:
            raise InvalidKeysFile(f"{SETTING}: {path}, line {number}: {_without_values(error)}") from None
        if key.name in names or key.digest in digests:
            raise InvalidKeysFile(f"{SETTING}: {path}, line {number}: another line has the same name or sha256")
        names.add(key.name)
        digests.add(key.digest)
        found.append((key, number))
    if len(found) > MOST_KEYS:
        raise InvalidKeysFile(f"{SETTING}: {path} contains more than {MOST_KEYS:,} keys")
    return found


def _key_of(line: bytes) -> ApiKey:
    read = msgspec.json.decode(line, type=_Line)
    if not is_key_name(read.name):
        raise ValueError(
            "name: must be up to 64 letters and digits, after the first also `.`, `_` and `-`, and not `anonymous` or `nobody`"
        )
    if re.fullmatch("[0-9a-f]{64}", read.sha256) is None:
        raise ValueError("sha256: must be 64 hexadecimal digits, the SHA-256 of the key and not the key")
    limit = limit_of(read.rate, read.burst)
    sources = frozenset(map(parse_source_name, read.sources)) if read.sources is not None else None
    return ApiKey(read.name, bytes.fromhex(read.sha256), frozenset(read.scopes), limit, read.created, sources)


def _without_values(error: Exception) -> str:
    """Describe an error without values, because msgspec quotes an unknown scope, which may be a secret."""
    if isinstance(error, InvalidSourceName):
        return "sources: must be names of sources: 1 to 32 of a-z, 0-9 and -"
    text = str(error)
    return "scopes: must be of " + ", ".join(Scope) if "enum value" in text else text


def _line_of(key: ApiKey) -> bytes:
    limit = key.limit
    line = {
        "name": key.name,
        "sha256": key.digest.hex(),
        "scopes": [scope.value for scope in Scope if scope in key.scopes],
        **({"rate": limit.rate, "burst": limit.burst} if limit else {}),
        **({"created": key.created.strftime("%Y-%m-%dT%H:%M:%SZ")} if key.created else {}),
        **({"sources": sorted(key.sources)} if key.sources is not None else {}),
    }
    return json.dumps(line).encode() + b"\n"


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(_LARGEST + 1)
    except (NotRegular, IsADirectoryError):
        raise InvalidKeysFile(f"{SETTING}: {path} is not a regular file") from None
    if len(content) > _LARGEST:
        raise InvalidKeysFile(f"{SETTING}: {path} is larger than {_LARGEST:,} bytes")
    return content


@contextmanager
def _changing(path: Path) -> Iterator[tuple[bytes, list[tuple[ApiKey, int]]]]:
    """Read the file, and hold the lock for changing it."""
    try:
        with locked_folder(path):
            content = b""
            with suppress(FileNotFoundError):
                content = _read(path)
            yield content, _parse(path, content)
    except SymbolicLink:
        raise CannotChangeKeys(f"{path} is a symbolic link: give the path of the file itself") from None
    except FileNotFoundError as error:
        raise CannotChangeKeys(f"cannot change {path}: the directory {path.parent} does not exist") from error
    except OSError as error:
        raise CannotChangeKeys(f"cannot change {path}: {error.strerror}") from error
