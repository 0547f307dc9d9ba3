"""Changes or exports selected dead letters or retries by a job, after a preview that counts them."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import ROOT, Page, Visit
from ingest.api.console.inputs import count_in, inputs_of, invalid, number_in, source_in
from ingest.api.console.pages.queues.chosen_entries import ChosenEntries
from ingest.api.console.pages.queues.entry_actions import ACTIONS, EntryAction
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.domain.operating.jobs import JobKind, JobRequest
from ingest.operations import jobs as operations
from ingest.operations.failed_orders.entries import FailedEntries
from ingest.operations.jobs.requests import entry_request

# A later end than in the preview, such as `+`, would include dead letters that workers add in the meantime.
_newest = msgspec.json.Decoder(dict[str, Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}-[0-9]{1,20}\Z")]])


class EntryChangePages(Pages):
    """The previews and the starts of these changes."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [page for action in ACTIONS for page in self._pages_of(action)]

    def _pages_of(self, action: EntryAction) -> Sequence[Page]:
        async def model(visit: Visit) -> dict[str, Any]:
            return await self._model(visit, action)

        async def start(visit: Visit) -> web.StreamResponse:
            return await self._start(visit, action)

        # An export as a job shows nothing until it is downloaded.
        operation = "jobs.start" if action.kind is JobKind.EXPORT else action.kind
        preview = self._live.page(action.kind.value, action.path, "queues/change", model, operation)
        return [preview, Page("POST", action.path, start, operation)]

    async def _model(self, visit: Visit, action: EntryAction) -> dict[str, Any]:
        form = inputs_of(visit)
        source, chosen = source_in(visit, form, self._sources), ChosenEntries.of(form)
        if form.has("chosen") and not chosen.ids:
            raise invalid("Selection", "choose at least one entry")
        if action.kind is JobKind.EXPORT and chosen.ids:
            raise invalid("Selection", "choose dead letters by other criteria than IDs")
        count = await self._parts.counts.of(source, action.entries, chosen.selection())
        values = {**chosen.values(), "source": source}
        return {
            "action": action,
            "source": source,
            "criteria": chosen.described(),
            "values": values,
            "examined": count.examined,
            "found": count.found,
            "newest": msgspec.json.encode(count.found.newest).decode() if count.found and count.found.newest else None,
            "stream": url(f"{ROOT}/events/{action.kind.value}", **values),
            "cancel": url(f"{ROOT}/{action.entries.path}", **values),
        }

    async def _start(self, visit: Visit, action: EntryAction) -> web.StreamResponse:
        form = visit.form
        source, chosen = source_in(visit, form, self._sources), ChosenEntries.of(form)
        connections = self._sources[source]
        request = await _request(connections.entries[action.entries], action.kind, form, chosen)
        added = await operations.start(connections.jobs, request, visit.caller.name)
        self._parts.runs.look()
        return self._frame.redirect(visit, url("/jobs/show", id=added.id))


async def _request(entries: FailedEntries, kind: JobKind, form: Form, chosen: ChosenEntries) -> JobRequest:
    return await entry_request(
        entries,
        kind,
        chosen.selection(),
        newest=_newest_in(form.text("newest")),
        total=count_in(form, "total", "Total", 0, 10**12),
        rate=number_in(form, "rate", "Limit", 0.001, 1_000_000),
        file_format="csv" if form.text("format") == "csv" else "jsonl",
    )


def _newest_in(text: str) -> dict[str, str] | None:
    if not text:
        return None
    try:
        return _newest.decode(text)
    except msgspec.DecodeError as error:
        raise invalid("Selection", "open the preview again") from error
