"""The sources of a process, made of their settings and checked before the processes start.

Compiled mappings and imported modules are shared by the processes, which are forked afterwards.
"""

import os
from typing import TYPE_CHECKING

import msgspec

from ingest.domain.errors import ConfigError, UserError
from ingest.mapping.transforms.process_pool import check_function
from ingest.process.interrupt import run_interruptible
from ingest.settings.names import naming_keys_of
from ingest.sources.from_settings import check_files, source_of
from ingest.sources.source import Source
from ingest.upstream.client import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingest.settings import Settings


class ConfiguredSource(msgspec.Struct, frozen=True):
    """A source with the settings that it is made of."""

    settings: "Settings"
    source: Source


def configured_sources(
    settings: "Settings", sources: "Mapping[str, Settings]"
) -> tuple[dict[str, ConfiguredSource], dict[str, str]]:
    """Return the usable sources, and the problems of the others, by name.

    Args:
        settings: of the processes.
        sources: the settings of each source.

    Raises:
        UserError: there are too many sources, or a setting, a file, a mapping or a transform of every source cannot be used.
    """
    if len(sources) > settings.concurrency:
        raise ConfigError(
            f"INGEST_CONCURRENCY is {settings.concurrency}, and there are {len(sources)} sources: "
            "each needs at least one order in flight"
        )
    configured, rejected = dict[str, ConfiguredSource](), dict[str, str]()
    for name, own in sources.items():
        try:
            configured[name] = _configured(own)
        except UserError as error:
            if len(sources) == 1:
                raise
            rejected[name] = str(error)
    if not configured:
        raise ConfigError("; ".join(rejected.values()))
    return configured, rejected


def checked_source(settings: "Settings") -> Source:
    """Return the source of these settings, without a check of its transform.

    Raises:
        UserError: a setting, a file or the mapping cannot be used.
    """
    source = source_of(settings, os.environ)
    check_files(source)
    require(source.endpoint.kind, has_proxy=source.endpoint.has_proxy)
    return source


def _configured(settings: "Settings") -> ConfiguredSource:
    source = checked_source(settings)
    if source.transform is not None:
        # In a separate process, because threads of the function's module would not survive the forks.
        with naming_keys_of(settings.source):
            run_interruptible(check_function(source.transform.function, source.transform.memory))
    return ConfiguredSource(settings, source)
