"""The body of a request for a job."""

from typing import Annotated, Literal

import msgspec

from ingest.api.operations.selections import SelectionBody


class JobBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of many dead letters or retries.

    Attributes:
        kind: the change.
        selection: the entries. Those that are added later do not belong to the job.
        rate: limit of changes per second.
    """

    kind: Literal["dead_letters.replay", "dead_letters.drop", "retries.run_now", "retries.dead_letter"]
    selection: SelectionBody
    rate: Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)] | None = None
