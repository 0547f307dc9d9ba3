"""Expands the table of a source of a known kind into a table of ordinary keys.

A kind provides the ordinary keys. They contain the values of keys that only the kind supports. The ordinary keys of the user override
them. No other part of the service uses kinds.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from ingest.domain.toml_errors import Keys, TableProblem
from ingest.settings.kinds.key_values import FROM_FILE, KIND, KeyValues, suffixes
from ingest.settings.kinds.kind_file import CredentialForm, Kind, kind_names, load_kind
from ingest.settings.names import UPSTREAM
from ingest.settings.source_values import TOP_KEYS, WEBHOOK


class Expanded(NamedTuple):
    """A table of ordinary keys.

    Attributes:
        table: the table.
        origins: for each value that the kind provides, by its keys, the key of the user that it comes from.
    """

    table: Any
    origins: Mapping[Keys, Keys]


def expand(table: Any) -> Expanded:
    """Return the table of a source in ordinary keys. A table without `kind` is returned unchanged.

    Raises:
        TableProblem: the kind is unknown, or a key is missing, unknown or cannot be used.
    """
    if not isinstance(table, dict) or KIND not in table:
        return Expanded(table, {})
    name = _name_of(table[KIND])
    kind = load_kind(name)
    names = {key + suffix for key, declared in kind.keys.items() for suffix in suffixes(declared)}
    own = {key: value for key, value in table.items() if key not in names and key != KIND}
    for key in own:
        if key not in TOP_KEYS:
            near = get_close_matches(key, [*names, *TOP_KEYS], n=1)
            raise TableProblem(f"unknown key `{key}`" + (f"; did you mean `{near[0]}`?" if near else ""), (key,))
    values = KeyValues(kind, table)
    # Only a source with a webhook needs the webhook of its kind.
    source = {key: value for key, value in kind.source.items() if key != WEBHOOK or WEBHOOK in own}
    credential = _credential(name, kind, values.given, own)
    if credential is not None:
        source = _merged(source, credential.source)
    return Expanded(_merged(values.inserted(source), own), values.origins)


def kind_of(table: Any) -> str | None:
    """Return the kind that the table of a source names."""
    kind = table.get(KIND) if isinstance(table, dict) else None
    return kind if isinstance(kind, str) else None


def _name_of(name: Any) -> str:
    known = kind_names()
    if name in known:
        return str(name)
    near = get_close_matches(str(name), known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"write one of {', '.join(known)}"
    raise TableProblem(f"unknown kind {str(name)[:64]!r}; {hint}", (KIND,))


def _credential(name: str, kind: Kind, given: Collection[str], own: Mapping[str, Any]) -> CredentialForm | None:
    """Return the form of credential that the given keys choose."""
    used = {key for each in kind.credentials for key in each.keys if key in given}
    upstream = own.get(UPSTREAM)
    if isinstance(upstream, dict) and "auth" in upstream:
        for key in sorted(used):
            raise TableProblem(f"`{key}` has no effect, because `upstream.auth` is set: remove one of them", (key,))
        return None
    for each in kind.credentials:
        if used == set(each.keys):
            return each
    if not kind.credentials:
        return None
    forms = ", or ".join(
        " and ".join(f"`{key}{FROM_FILE if kind.keys[key].is_secret else ''}`" for key in each.keys)
        for each in kind.credentials
    )
    got = f" (got {', '.join(sorted(used))})" if used else ""
    raise TableProblem(f"the kind `{name}` needs {forms}{got}", (KIND,))


def _merged(base: Any, over: Any) -> Any:
    """Return the base with the values of the other. In lists of tables, the tables of the other come first."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: _merged(base[key], value) if key in base else value for key, value in over.items()}
    if isinstance(base, list) and isinstance(over, list) and all(isinstance(each, dict) for each in (*base, *over)):
        return [*over, *base]
    return over
