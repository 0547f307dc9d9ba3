"""The audit log of manual changes, with their actors, counts and results."""

from collections.abc import Sequence
from dataclasses import replace

from aiohttp import web

from ingest.api.console.frame import Page, Visit
from ingest.api.console.inputs import choices_of, cursor_in, inputs_of, time_in, time_value
from ingest.api.console.parts import Pages
from ingest.api.console.templating import url
from ingest.api.http.parameters import cursor_of
from ingest.api.operations.audit_routes import permitted_sources
from ingest.domain.operating.audited_operation import AuditFilter
from ingest.store.audit_reading import audited_operations

_LIMIT = 100


class AuditPages(Pages):
    """`/console/audit`."""

    def pages(self) -> Sequence[Page]:
        """See `Pages`."""
        return [Page("GET", "/audit", self._list, "audit.list")]

    async def _list(self, visit: Visit) -> web.StreamResponse:
        form = inputs_of(visit)
        chosen = [name for name in form.texts("source") if name]
        actor, action, before = form.text("actor"), form.text("action"), cursor_in(form, int)
        since, until = time_in(form, "since", "From"), time_in(form, "until", "Until")
        selection = AuditFilter(permitted_sources(chosen, visit.caller), actor or None, action or None, since, until)
        found = await audited_operations(self._access.pool, selection, _LIMIT + 1, before)
        values = {
            "source": chosen[0] if chosen else None,
            "actor": actor or None,
            "action": action or None,
            "since": time_value(since),
            "until": time_value(until),
        }
        path = "/console/audit"
        return self._frame.render(
            visit,
            "audit.html",
            operations=[
                replace(each, selection=visit.caller.sees.selection(each.selection)) for each in found[:_LIMIT]
            ],
            values=values,
            sources=choices_of(visit.permitted(sorted(self._parts.settings_of))),
            first=url(path, **values) if before else None,
            next=url(path, **values, cursor=cursor_of(found[_LIMIT - 1].number)) if len(found) > _LIMIT else None,
        )
