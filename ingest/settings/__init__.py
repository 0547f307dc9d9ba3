"""All settings of the service, read from the environment, `.env` and secret files.

A setting `INGEST_X` may also be given as `INGEST_X_FILE`, the path of a file that holds its value (such as a mounted
secret). The environment takes precedence over `.env`, and the command line takes precedence over both.

Each topic has a module that declares and validates its settings; `loading` puts them together.
"""

from ingest.settings.loading import Settings, effective, load_settings, unknown_settings
from ingest.settings.prefix import PREFIX
from ingest.settings.sources import names_in_dot_env

__all__ = ["PREFIX", "Settings", "effective", "load_settings", "names_in_dot_env", "unknown_settings"]
