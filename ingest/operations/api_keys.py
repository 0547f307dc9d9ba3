"""Creates, lists and revokes API keys in the file that the HTTP API reads."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ingest.domain.api_key import RANDOM_BYTES, ApiKey, RateLimit, Scope, digest_of, make_key
from ingest.operations.keys_file import add_key, read_keys, remove_keys


@dataclass(frozen=True, slots=True)
class NewKey:
    """A newly created key.

    Attributes:
        text: the secret, to be shown once. It is not stored.
        key: the stored record.
    """

    text: str
    key: ApiKey


def create(path: Path, name: str, scopes: Collection[Scope], limit: RateLimit | None) -> NewKey:
    """Create a key. The caller shows the text to the user, or revokes the key if that fails."""
    text = make_key(secrets.token_bytes(RANDOM_BYTES))
    key = ApiKey(name, digest_of(text), frozenset(scopes), limit, datetime.now(UTC).replace(microsecond=0))
    add_key(path, key)
    return NewKey(text, key)


def list_keys(path: Path) -> list[ApiKey]:
    """Return all keys in file order."""
    return read_keys(path)


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
    }
