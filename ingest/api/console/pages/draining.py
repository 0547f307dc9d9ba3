"""Drains worker processes, and undoes it, after a preview. Changes the log level of workers."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from aiohttp import web

from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import inputs_of, invalid
from ingest.api.console.parts import Pages
from ingest.api.operations.concerned_sources import require_all
from ingest.domain.operating.controls import ALL_HOSTS, LOG_LEVELS
from ingest.operations.control import controls
from ingest.operations.control.control_access import ControlAccess

_Change = Callable[[ControlAccess, str, str], Awaitable[Sequence[controls.WorkerProcess]]]


class DrainingPages(Pages):
    """`/console/workers/drain`, `/undrain` and `/log-level`. They concern all sources, so a limited key may not use them."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/workers/drain", self._preview, "drain"),
            Page("POST", "/workers/drain", self._drain, "drain"),
            Page("POST", "/workers/undrain", self._undrain, "drain.undo"),
            Page("POST", "/workers/log-level", self._log_level, "log_level"),
        ]

    async def _preview(self, visit: Visit) -> web.StreamResponse:
        self._require_all(visit)
        target = inputs_of(visit).text("target")
        found = await controls.matching(self._access, target)
        drains = (await self._access.read()).drains
        return self._frame.render(
            visit, "workers/drain.html", target=target, processes=found, drained=drains.get(target)
        )

    async def _drain(self, visit: Visit) -> web.StreamResponse:
        changing = partial(controls.drain, reason=visit.form.text("reason"))
        return await self._changed(visit, changing, "begin no more orders. They do not end.")

    async def _undrain(self, visit: Visit) -> web.StreamResponse:
        return await self._changed(visit, controls.undrain, "begin orders again.")

    async def _changed(self, visit: Visit, change: _Change, effect: str) -> web.StreamResponse:
        self._require_all(visit)
        target = visit.form.text("target")
        try:
            found = await change(self._access, target, visit.caller.name)
        except controls.NoSuchProcess as error:
            return self._frame.redirect(visit, "/workers", str(error), is_error=True)
        return self._frame.redirect(visit, "/workers", f"{target}: {_counted(len(found))} {effect}")

    async def _log_level(self, visit: Visit) -> web.StreamResponse:
        self._require_all(visit)
        chosen, host = visit.form.text("level"), visit.form.text("host")
        level = next((each for each in LOG_LEVELS if each == chosen), None)
        if chosen and level is None:
            raise invalid("Log level", f"choose one of {', '.join(LOG_LEVELS)}")
        await controls.set_log_level(self._access, level, visit.caller.name, host or ALL_HOSTS)
        message = f"The log level of the workers is {level}." if level else "The configured log level applies again."
        return self._frame.redirect(visit, "/workers", message)

    def _require_all(self, visit: Visit) -> None:
        require_all(visit.caller, self._access.sources)


def _counted(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
