"""Inserts the values of the keys of a kind into the texts of its table."""

import re
from collections.abc import Mapping
from typing import Any

from ingest.domain.toml_errors import Keys, TableProblem
from ingest.settings.kinds.kind_file import Kind, KindKey

KIND = "kind"
FROM_FILE = "_file"
_BASE_URL = "base_url"
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
# Values are inserted into URLs and into bodies in JSON.
_PLAIN = re.compile(r"[^\s\x00-\x1f\"\\{}<>^`|]+")
_URL = re.compile(r"https?://[^/?#@]+(/[^?#]*)?(?<!/)")


class KeyValues:
    """The values that a user has given to the keys of a kind.

    Args:
        kind: the kind.
        table: of the user. Its other keys are ignored.

    Attributes:
        given: the keys with a value, without `_file`.
        origins: for each inserted value, by its keys, the key of the user that it comes from.

    Raises:
        TableProblem: a value cannot be used.
    """

    def __init__(self, kind: Kind, table: Mapping[str, Any]) -> None:
        self._kind = kind
        self._names = {name + suffix: name for name, key in kind.keys.items() for suffix in suffixes(key)}
        self._table = {name: value for name, value in table.items() if name in self._names}
        self.given = {self._names[name] for name in self._table}
        self.origins: dict[Keys, Keys] = {}
        for name, value in self._table.items():
            self._check(name, kind.keys[self._names[name]], value)

    def inserted(self, value: Any, keys: Keys = ()) -> Any:
        """Return a value of the kind, in which texts have no more placeholders of its keys.

        Args:
            value: with placeholders.
            keys: its location in the table of the source.

        Raises:
            TableProblem: a required key is missing.
        """
        if isinstance(value, list):
            return [self.inserted(each, (*keys, index)) for index, each in enumerate(value)]
        if isinstance(value, dict):
            return dict(self._member(name, each, keys) for name, each in value.items())
        self.origins[keys] = (KIND,)
        return self._text(value, keys) if isinstance(value, str) else value

    def _member(self, name: str, value: Any, keys: Keys) -> tuple[str, Any]:
        """Return a key and its value. The key of a secret that is in a file names the file."""
        found = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
        if not found or found[1] not in self._kind.keys or not self._kind.keys[found[1]].is_secret:
            return name, self.inserted(value, (*keys, name))
        suffix = "" if found[1] in self._table else FROM_FILE
        given = found[1] + suffix
        self.origins[*keys, name + suffix] = (given,)
        return name + suffix, self._table[given]

    def _text(self, text: str, keys: Keys) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1]
            key = self._kind.keys.get(name)
            if key is None:
                return found[0]  # of requests, such as {order_id}
            if name in self._table:
                self.origins[keys] = (name,)
                given: str = self._table[name]
                return key.values.get(given, given)
            if key.default is None:
                raise TableProblem(f"needs the key `{name}`{_such_as(key)}")
            default = (_BASE_URL in self._table and key.default_with_base_url) or key.default or ""
            return _PLACEHOLDER.sub(value, key.values.get(default, default))

        return _PLACEHOLDER.sub(value, text)

    def _check(self, name: str, key: KindKey, value: Any) -> None:
        if not isinstance(value, str) or not value:
            raise TableProblem(f"must be a text{_such_as(key)}", (name,))
        if key.is_secret:
            if name + FROM_FILE in self._table:
                raise TableProblem(f"both `{name}` and `{name}{FROM_FILE}` are set: remove one of them", (name,))
        elif key.values and value not in key.values:
            raise TableProblem(f"must be one of {', '.join(key.values)} (got {value[:64]!r})", (name,))
        elif not _PLAIN.fullmatch(value) or not re.fullmatch(key.pattern or ".*", value):
            raise TableProblem(f"is not valid{_such_as(key)} (got {value[:64]!r})", (name,))
        elif name == _BASE_URL and not _URL.fullmatch(value):
            raise TableProblem(
                "must be a URL without a user, a query or a slash at its end, such as https://shop.example", (name,)
            )


def suffixes(key: KindKey) -> tuple[str, ...]:
    """Return the ends of the names under which a key may be given."""
    return ("", FROM_FILE) if key.is_secret else ("",)


def _such_as(key: KindKey) -> str:
    return f", such as {key.example}" if key.example else ""
