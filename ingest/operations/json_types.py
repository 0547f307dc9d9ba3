"""The types of values in responses, from which the OpenAPI document is generated."""

from datetime import UTC, datetime
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, TypeVar, get_args

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
LISTED = "A page. `next_cursor` is the parameter `cursor` of the next request, or null after the last page."
_Response = TypeVar("_Response", bound=msgspec.Struct)


def page_of(member: str, element: type, **further: Any) -> Any:
    """Return the type of a page with these elements, a cursor, and further members."""
    members = {member: GenericAlias(list, (element,)), "next_cursor": str | None, **further}
    return msgspec.defstruct(f"{element.__name__}Page", members.items(), frozen=True, namespace={"__doc__": LISTED})


def response_of(kind: type[_Response], *values: object, **given: Any) -> _Response:
    """Return a response with the attributes that values have by the names of its fields, and with those that are given.

    A time becomes a text if the response has `Time` there.
    """
    for name, has_moment in _fields_of(kind).items():
        if name not in given and (owner := next((each for each in values if hasattr(each, name)), None)) is not None:
            value = getattr(owner, name)
            given[name] = json_time(value) if isinstance(value, datetime) and not has_moment else value
    return kind(**given)


@cache
def _fields_of(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """The fields of a response, and whether each may be a `datetime`."""
    return {each.name: _has_moment(each.type) for each in msgspec.structs.fields(kind)}


def _has_moment(kind: Any) -> bool:
    return kind is datetime or any(map(_has_moment, get_args(kind)))


def json_time(moment: datetime) -> str:
    """Convert a time for JSON: in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
