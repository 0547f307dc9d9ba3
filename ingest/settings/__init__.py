"""All settings of the service, read from the environment, `.env` and secret files.

A setting `INGEST_X` may also be given as `INGEST_X_FILE`, the path of a file that contains its value (such as a mounted
secret). The environment takes precedence over `.env`, and the command line takes precedence over both.

The module of each topic declares and validates its settings. `loading` combines them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingest.settings.loading import Settings, load_settings, unknown_settings
    from ingest.settings.masked_values import effective
    from ingest.settings.variables import names_in_dot_env

__all__ = ["PREFIX", "Settings", "effective", "load_settings", "names_in_dot_env", "unknown_settings"]

PREFIX = "INGEST_"
"""The start of the name of every setting."""

# Imported lazily, because a process that receives the settings does not need the code that reads them.
_MODULES = {
    "Settings": "ingest.settings.loading",
    "effective": "ingest.settings.masked_values",
    "load_settings": "ingest.settings.loading",
    "names_in_dot_env": "ingest.settings.variables",
    "unknown_settings": "ingest.settings.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
