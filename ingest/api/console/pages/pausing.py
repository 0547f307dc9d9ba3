"""Pauses and resumes sources, and changes the limits of a running source, each after a preview."""

from collections.abc import Sequence
from functools import partial

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import count_in, inputs_of, invalid, number_in, source_in, sources_in
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.operations.concerned_sources import require_quota
from ingest.domain.durations import parse_duration
from ingest.operations.control import controls, pauses


class PausingPages(Pages):
    """`/console/sources/pause`, `/resume` and `/tune`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [
            Page("GET", "/sources/pause", partial(self._preview, "pausing/pause.html"), "pause"),
            Page("POST", "/sources/pause", self._pause, "pause"),
            Page("GET", "/sources/resume", partial(self._preview, "pausing/resume.html"), "resume"),
            Page("POST", "/sources/resume", self._resume, "resume"),
            Page("GET", "/sources/tune", self._preview_tune, "tune"),
            Page("POST", "/sources/tune", self._tune, "tune"),
            Page("POST", "/sources/tune/reset", self._reset, "tune.reset"),
        ]

    async def _preview(self, template: str, visit: Visit) -> web.StreamResponse:
        names = sources_in(visit, inputs_of(visit), self._access.sources)
        found = await pauses.preview(self._access, names)
        return self._frame.render(visit, template, sources=found)

    async def _pause(self, visit: Visit) -> web.StreamResponse:
        names = sources_in(visit, visit.form, self._access.sources)
        request = pauses.PauseRequest(
            _seconds(visit.form),
            visit.form.text("reason"),
            rejects_orders=visit.form.has("rejects_orders"),
            holds_polls=visit.form.has("holds_polls"),
        )
        await pauses.pause(self._access, names, request, visit.caller.name)
        return self._back(visit, names, f"{_listed(names)} paused. Requests in flight finish.")

    async def _resume(self, visit: Visit) -> web.StreamResponse:
        names = sources_in(visit, visit.form, self._access.sources)
        resumed = await pauses.resume(self._access, names, visit.caller.name)
        return self._back(visit, names, f"{_listed(resumed)} resumed." if resumed else "No source was paused.")

    async def _preview_tune(self, visit: Visit) -> web.StreamResponse:
        source = self._tuned_in(visit, inputs_of(visit))
        current = (await self._access.read()).tunings.get(source)
        configured = self._parts.settings_of[source]
        return self._frame.render(visit, "pausing/tune.html", source=source, tuning=current, configured=configured)

    async def _tune(self, visit: Visit) -> web.StreamResponse:
        source = self._tuned_in(visit, visit.form)
        concurrency = count_in(visit.form, "concurrency", "Concurrency", 1, 10_000)
        rate = number_in(visit.form, "rate", "Rate", 0.001, 1_000_000)
        tuned = await controls.tune(self._access, source, visit.caller.name, concurrency=concurrency, rate=rate)
        changed = [f"concurrency {tuned.concurrency}"] if tuned.concurrency is not None else []
        changed += [f"rate {tuned.rate:g}/s"] if tuned.rate is not None else []
        return self._back(visit, [source], f"Workers follow within two seconds: {' and '.join(changed)}.")

    async def _reset(self, visit: Visit) -> web.StreamResponse:
        source = self._tuned_in(visit, visit.form)
        await controls.reset_tuning(self._access, source, visit.caller.name)
        return self._back(visit, [source], "The configured limits apply again.")

    def _tuned_in(self, visit: Visit, form: Form) -> str:
        """Return the chosen source. Sources that share its quota get the same rate."""
        source = source_in(visit, form, self._access.sources)
        require_quota(visit.caller, self._access.sources, source)
        return source

    def _back(self, visit: Visit, names: Sequence[str], message: str) -> web.StreamResponse:
        path = url("/sources/show", source=names[0]) if len(names) == 1 else "/sources"
        return self._frame.redirect(visit, path, message)


def _seconds(form: Form) -> float | None:
    text = form.text("for")
    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid("Duration", str(error)) from error


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name or "The source" for name in names)
