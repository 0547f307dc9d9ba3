"""The settings of `ingest api` and of the sources, with secrets masked, and where each comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from ingest.api.console.frame import Frame, Page, Visit
from ingest.api.console.inputs import inputs_of
from ingest.api.http.problems import Problem
from ingest.domain.errors import ConfigError
from ingest.settings import Settings
from ingest.settings.origins import ListedSetting, settings_of_process, settings_of_source
from ingest.settings.source_file import source_tables


@dataclass(frozen=True, slots=True)
class SettingsGroup:
    """The settings of the process or of one source."""

    title: str
    settings: Sequence[ListedSetting]


class SettingsPages:
    """`/console/settings`."""

    def __init__(self, frame: Frame, settings: Settings, settings_of: Mapping[str, Settings]) -> None:
        self._frame = frame
        self._settings = settings
        self._settings_of = settings_of

    def pages(self) -> Sequence[Page]:
        """The pages."""
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
            groups.append(SettingsGroup("ingest api", [*settings_of_process(self._settings)]))
        if self._settings.sources is not None:
            tables = source_tables(self._settings)
            groups += [
                SettingsGroup(
                    f"Source {name}", [*settings_of_source(self._settings, self._settings_of[name], tables[name])]
                )
                for name in visit.permitted(sorted(self._settings_of))
                if name in tables
            ]
        return groups
