"""The sources that the HTTP API serves, read from files. A source that cannot be used keeps no other from being served."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ingest.api.webhooks.load import load_webhooks
from ingest.api.webhooks.secret_files import SecretFiles
from ingest.api.webhooks.source_webhook import webhook_of
from ingest.api.webhooks.webhook import Webhook
from ingest.domain.errors import ConfigError
from ingest.domain.operating.service_report import Rejection, rejected_since
from ingest.files.watch import Identity, identity_of
from ingest.settings import Settings
from ingest.settings.names import naming_keys_of
from ingest.settings.source_file import usable_source_settings
from ingest.settings.source_values import values_without_secrets
from ingest.sources.documents import mapping_of

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping


@dataclass(frozen=True, slots=True)
class ServedSources:
    """The sources by name.

    Attributes:
        settings: of each source.
        webhooks: of each source.
        mappings: of each usable source, compiled, or None for our own documents.
        rejected: the sources whose configuration cannot be used. They are served by the previous one, if there is one. Otherwise, if
            only the mapping or the webhook is wrong, their orders can be seen and enqueued by ID.
    """

    settings: Mapping[str, Settings]
    webhooks: Mapping[str, Sequence[Webhook]] = field(default_factory=dict)
    mappings: "Mapping[str, CompiledMapping | None]" = field(default_factory=dict)
    rejected: Mapping[str, Rejection] = field(default_factory=dict)

    @classmethod
    def read(cls, settings: Settings, before: "ServedSources | None" = None) -> Self:
        """Read the sources, their webhooks and their mappings from files.

        Args:
            settings: of the process.
            before: the sources that were served before, if any.

        Raises:
            ConfigError: the sources file cannot be used, or not one source in it.
        """
        read, problems = usable_source_settings(settings, read=values_without_secrets)
        known = cls({}) if before is None else before
        sources, webhooks = dict(read), dict[str, Sequence[Webhook]]()
        mappings: dict[str, CompiledMapping | None] = {}
        for name, each in read.items():
            try:
                with naming_keys_of(name):
                    found = _webhooks_of(each), mapping_of(each)
                webhooks[name], mappings[name] = found
            except ConfigError as error:
                problems[name] = str(error)
        if not mappings and before is None:
            raise ConfigError("; ".join(problems.values()))
        for name in problems.keys() & known.mappings.keys():
            sources[name], mappings[name] = known.settings[name], known.mappings[name]
            webhooks[name] = known.webhooks.get(name, ())
            problems[name] += "; its previous configuration stays in use"
        return cls(sources, webhooks, mappings, rejected_since(problems, known.rejected, time.time()))

    def rejecting_all(self, problem: str) -> "ServedSources":
        """Return the same sources, whose file cannot be used."""
        problems = dict.fromkeys(self.settings, f"{problem}; the previous configuration stays in use")
        return ServedSources(
            self.settings, self.webhooks, self.mappings, rejected_since(problems, self.rejected, time.time())
        )


def identities(settings: Settings, sources: Iterable[Settings]) -> dict[Path, Identity]:
    """Return the identities of the files that the served sources depend on now."""
    files = [settings.sources, settings.webhooks]
    followed = (file for each in sources for file in each.followed)
    return {file: identity_of(file) for file in (*(Path(file) for file in files if file is not None), *followed)}


def _webhooks_of(settings: Settings) -> Sequence[Webhook]:
    """Read the webhooks of a source. The webhooks of the unnamed source are in a separate file.

    A missing secret keeps neither other webhooks nor the API from working. Its file is watched.
    """
    if settings.source:
        webhook = webhook_of(settings, SecretFiles.unread)
        return [] if webhook is None else [webhook]
    return load_webhooks(settings.webhooks, SecretFiles.unread) if settings.webhooks is not None else []
