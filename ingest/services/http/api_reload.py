"""Reads the sources of `ingest api` again after a file that describes them has changed, or after SIGHUP.

New processes with the new sources then take the place of the others, which finish their requests. If a file cannot be used, the
processes continue with the sources before, and report it.
"""

from collections.abc import Callable

from ingest.domain.errors import UserError
from ingest.files.watch import CHECK_EVERY
from ingest.services.http.served_sources import ServedSources, identities
from ingest.settings import Settings
from ingest.settings.versions import changes
from ingest.telemetry.logs import get_logger

_log = get_logger("sources")


class ApiReload:
    """The part of the supervisor, see `ingest.process.child.Reload`.

    Args:
        settings: of the processes.
        sources: at the start.
        replace: starts processes with other sources, and stops the previous processes.
    """

    def __init__(self, settings: Settings, sources: ServedSources, replace: Callable[[ServedSources], None]) -> None:
        self._settings = settings
        self._sources = sources
        self._replace = replace
        self._followed = [*sources.settings.values()]
        self._used = self._seen = identities(settings, self._followed)
        self._is_requested = False
        self._log_rejected(ServedSources({}))

    def check(self) -> float:
        """Read the sources if a file has changed, but not since the last check. Return the seconds until the next check."""
        found = identities(self._settings, self._followed)
        is_due = self._is_requested or (found != self._used and found == self._seen)
        self._seen = found
        if not is_due:
            return CHECK_EVERY
        self._used, self._is_requested = found, False
        before = self._sources
        try:
            self._sources = ServedSources.read(self._settings, before)
        except UserError as error:
            self._sources = before.rejecting_all(str(error))
            _log.error("sources_not_reloaded", file=self._settings.sources, problem=str(error))
        else:
            self._followed = [*self._sources.settings.values()]
            self._used = self._seen = identities(self._settings, self._followed)
            self._log_rejected(before)
            _log.info(
                "sources_reloaded", file=self._settings.sources, **changes(before.settings, self._sources.settings)
            )
        self._replace(self._sources)
        return 0.0

    def request(self) -> None:
        """See `Reload`."""
        self._is_requested = True

    def _log_rejected(self, before: ServedSources) -> None:
        for name, rejection in self._sources.rejected.items():
            if before.rejected.get(name) != rejection:
                _log.error("source_failed", source=name, problem=rejection.problem)
