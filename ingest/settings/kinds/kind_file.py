"""Loads the files of the kinds, which are TOML files in `ingest/sources/kinds`."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_FILES = files("ingest.sources") / "kinds"
_SUFFIX = ".toml"


class KindKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key of a kind. It is required unless it has a default, or is a secret, which only a form of credential requires.

    Attributes:
        about: one sentence.
        default: its value, a text with placeholders.
        default_with_base_url: its default if the user gives `base_url`, so that this key is enough to send all requests elsewhere.
        is_secret: whether it is a secret, which may be in a file that the key with `_file` names.
        values: the possible values, with the text that each stands for.
        pattern: the whole value must match it.
        example: a value, for errors.
    """

    about: str
    default: str | None = None
    default_with_base_url: str | None = None
    is_secret: bool = False
    values: dict[str, str] = {}
    pattern: str | None = None
    example: str = ""


class CredentialForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ordinary keys for a form of credential, and the keys of the kind that it needs."""

    keys: list[str]
    source: dict[str, Any]


class Kind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a kind.

    Attributes:
        about: a few words.
        keys: the keys that only this kind supports.
        source: the table of ordinary keys. The values of `keys` replace the placeholders in its texts.
        credentials: forms of credential. One of them is used, unless the user sets `upstream.auth`.
    """

    about: str
    keys: dict[str, KindKey]
    source: dict[str, Any]
    credentials: list[CredentialForm] = []


def kind_names() -> list[str]:
    """Return the names of the kinds."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _FILES.iterdir() if entry.name.endswith(_SUFFIX))


@cache
def load_kind(name: str) -> Kind:
    """Load a kind by its name."""
    return msgspec.convert(tomllib.loads((_FILES / f"{name}{_SUFFIX}").read_text(encoding="utf-8")), Kind)
