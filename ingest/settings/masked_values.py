"""Shows the values of settings, with secrets masked."""

import json
from typing import Any

from pydantic import SecretStr

from ingest.domain.fetch.request_headers import parse_headers
from ingest.domain.masking import MASK, mask_headers, mask_url
from ingest.settings import PREFIX
from ingest.settings.loading import Settings
from ingest.settings.names import describes_source, is_of_file
from ingest.settings.problems import URLS

OWN = ("concurrency", "coalesce", "partitions")
"""The settings of the process that a source may set for itself."""


def effective(settings: Settings) -> dict[str, Any]:
    """Return all values by variable name, with passwords and tokens masked.

    With a sources file, they do not include the settings that describe a source.
    """
    names = (name for name in Settings.model_fields if settings.sources is None or not is_of_file(name))
    return {PREFIX + name.upper(): _masked(name, getattr(settings, name)) for name in names}


def effective_source(settings: Settings) -> dict[str, Any]:
    """Return the values of a named source by the name of the setting, masked as in `effective`."""
    names = [*OWN, *(name for name in Settings.model_fields if describes_source(name))]
    return {name: _masked(name, getattr(settings, name)) for name in names}


def _masked(name: str, value: Any) -> Any:
    if name == "order_list" and value and value.lstrip().startswith("{"):
        return _masked_list(value)
    if name == "upstream_headers" and value is not None:
        return json.dumps(mask_headers(parse_headers(value.get_secret_value())))
    if isinstance(value, SecretStr):
        value = value.get_secret_value() if name.endswith(URLS) else MASK
    return mask_url(value) if name.endswith(URLS) and value else value


def _masked_list(text: str) -> str:
    """Return the description of a list with its URL masked."""
    try:
        table = json.loads(text)
        table["url"] = mask_url(table["url"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return MASK  # another part reports the problem
    return json.dumps(table)
