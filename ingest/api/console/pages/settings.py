"""The settings of `ingest api` and of the sources, with secrets masked, and where each comes from."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import inputs_of
from ingest.api.console.parts import Pages
from ingest.api.http.problems import Problem
from ingest.domain.errors import ConfigError
from ingest.settings.origins import ListedSetting, settings_of_process, settings_of_source
from ingest.settings.source_file import source_tables


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """The settings of the process or of one source."""

    title: str
    settings: Sequence[ListedSetting]


class SettingsPages(Pages):
    """`/console/settings`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [Page("GET", "/settings", self._list, "settings.show")]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        shows_all = inputs_of(visit).has("all")
        try:
            found = self._groups(visit)
        except ConfigError as error:
            # The sources file has changed since the start.
            detail = str(error) if visit.caller.sources is None else "the file of the sources cannot be used"
            raise Problem(503, "sources_unusable", detail) from error
        groups = [
            SettingsGroup(group.title, [each for each in group.settings if shows_all or each.is_changed])
            for group in found
        ]
        return self._frame.render(visit, "settings.html", groups=groups, shows_all=shows_all)

    def _groups(self, visit: Visit) -> list[SettingsGroup]:
        groups = []
        if visit.caller.sources is None:
            groups.append(SettingsGroup("ingest api", [*settings_of_process(self._parts.settings)]))
        if self._parts.settings.sources is not None:
            tables = source_tables(self._parts.settings)
            groups += [
                SettingsGroup(
                    f"Source {name}",
                    [*settings_of_source(self._parts.settings, self._parts.settings_of[name], tables[name])],
                )
                for name in visit.permitted(sorted(self._parts.settings_of))
                if name in tables
            ]
        return groups
