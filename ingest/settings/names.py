"""The names of settings in messages: the variable, or the key in the sources file for the settings of a named source."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.domain.errors import ConfigError
from ingest.settings import PREFIX

UPSTREAM = "upstream"
_UPSTREAM_FIELD = f"{UPSTREAM}_"
# The settings of the processing and of the list of orders. All others that describe a source begin with `upstream_`.
_PROCESSING = (
    "mapping",
    "transform",
    "transform_processes",
    "transform_timeout",
    "transform_memory",
    "keep_document",
    "results",
    "results_age",
    "order_list",
    "poll",
    "responses",
)
# Keys with another name than their setting, because a list without an owner means nothing among the variables.
_KEYS = {"order_list": "list"}
_VARIABLE = re.compile(
    rf"\b{PREFIX}(?:UPSTREAM_[A-Z0-9_]*|{'|'.join(map(str.upper, reversed(_PROCESSING)))})(?![A-Z0-9_])"
)


def describes_source(field: str) -> bool:
    """Return whether a setting belongs to one source, and cannot be shared by several."""
    return field.startswith(_UPSTREAM_FIELD) or field in _PROCESSING


def is_of_file(field: str) -> bool:
    """Return whether a setting is read from the sources file only, if there is one."""
    return describes_source(field) or field == "webhooks"


def key_of(field: str) -> tuple[str, ...]:
    """Return the keys of a setting within the table of its source: `("upstream", "token")` for `upstream_token`."""
    if field.startswith(_UPSTREAM_FIELD):
        return UPSTREAM, field.removeprefix(_UPSTREAM_FIELD)
    return (_KEYS.get(field, field),)


def keys_in_file(source: str, field: str) -> tuple[str, ...]:
    """Return the keys of a setting from the top of the sources file."""
    return ("sources", source, *key_of(field))


def setting_name(source: str, field: str) -> str:
    """Return the name of a setting that describes a source: `INGEST_UPSTREAM_TOKEN`, or `sources.shop-de.upstream.token`."""
    if not source:
        return f"{PREFIX}{field.upper()}"
    from ingest.domain.toml_errors import dotted  # noqa: PLC0415  a worker reads no TOML

    return dotted(keys_in_file(source, field))


def file_setting(source: str, field: str) -> str:
    """Return the name of the setting that names the file with the value: `INGEST_UPSTREAM_TOKEN_FILE`."""
    return setting_name(source, f"{field}_file")


def with_names_of(source: str, text: str) -> str:
    """Return a message in which the variables that describe a source are replaced by the keys of a named source."""
    if not source:
        return text
    return _VARIABLE.sub(lambda found: setting_name(source, found[0].removeprefix(PREFIX).lower()), text)


@contextmanager
def naming_keys_of(source: str) -> Iterator[None]:
    """Name the keys of the source in an error of the block, which may come from a part that reads only the variables."""
    try:
        yield
    except ConfigError as error:
        if not source:
            raise
        raise ConfigError(with_names_of(source, str(error))) from error
