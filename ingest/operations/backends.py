"""The servers and names that every operation needs to find the orders."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.source_name import UNNAMED, chosen_source, deployment_of
from ingest.settings import Settings
from ingest.settings.source_file import source_settings_without_secrets


@dataclass(frozen=True, slots=True)
class Backends:
    """The queue of a source, one of its consumer groups, and a database.

    Attributes:
        source: the name of the source. Its orders are those with this name in the database.
        durability, replicas: see `Producer`.
        partitions: of the queue when it is created.
        results_age: seconds for which results are kept.
        keeps_history: whether the history of orders is kept.
        quota: the name of a quota that several sources share. Empty if the source has a separate one.
        versions: returns the versions of the files that the behaviour of the source depends on, see `ProcessReport`.
    """

    redis_url: str = field(repr=False)
    postgres_dsn: str = field(repr=False)
    stream: str = "orders"
    group: str = "ingest"
    source: str = UNNAMED
    durability: Durability = Durability.MEMORY
    replicas: int = 1
    partitions: int = 1
    results_age: float = 86_400.0
    keeps_history: bool = False
    quota: str = ""
    versions: Callable[[], Mapping[str, str]] = field(default=dict, repr=False, compare=False)

    @property
    def deployment(self) -> str:
        """The name of the queue of the unnamed source, after which keys of the whole deployment are named."""
        return deployment_of(self.stream, self.source)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the servers and names from the settings of one source."""
        return cls(
            settings.redis_url.get_secret_value(),
            settings.postgres_dsn.get_secret_value(),
            settings.stream,
            settings.group,
            settings.source,
            settings.durability,
            settings.durability_replicas,
            settings.partitions,
            settings.results_age,
            settings.history > 0,
            settings.upstream_quota or "",
            settings.current_versions,
        )

    @classmethod
    def of_source(cls, settings: Settings, name: str | None = None) -> Self:
        """Return the servers and names of a source in the sources file, or of the only source.

        Raises:
            ConfigError: no source has this name, or there are several and none is named.
        """
        sources = source_settings_without_secrets(settings)
        return cls.of(sources[chosen_source(name, sources)])
