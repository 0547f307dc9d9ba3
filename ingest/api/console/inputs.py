"""Reads the values in the query or the form of a page. An empty field counts as not given."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ingest.api.console.forms import Form
from ingest.api.console.frame import Visit
from ingest.api.http.parameters import decoded_cursor, is_number, moment_of
from ingest.api.http.problems import Problem
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

_LONGEST = 500
_LONGEST_CURSOR = 2_000


def inputs_of(visit: Visit) -> Form:
    """Return the form of an action, or else the query of the page.

    Raises:
        Problem: 422 for a value that is too long.
    """
    if visit.request.method == "POST":
        return visit.form
    query = visit.request.query
    fields = {name: query.getall(name) for name in query}
    for name, values in fields.items():
        longest = _LONGEST_CURSOR if name == "cursor" else _LONGEST
        if any(len(value) > longest or "\0" in value for value in values):
            raise Problem(422, "invalid_parameter", f"{name}: at most {longest:,} characters, and no NUL")
    return Form(fields)


def time_in(form: Form, name: str, label: str) -> datetime | None:
    """Return a time. Without an offset, such as in a field of a form, it is in UTC.

    Raises:
        Problem: 422 with the field's label for another text.
    """
    text = form.text(name)
    try:
        return moment_of(text) if text else None
    except (ValueError, OverflowError):
        raise invalid(label, "enter a time such as 2026-01-31 08:00") from None


def time_value(moment: datetime | None) -> str | None:
    """Return a time as the value of a field, which is in UTC without an offset."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def number_in(form: Form, name: str, label: str, lowest: float, highest: float) -> float | None:
    """Return a number within these limits.

    Raises:
        Problem: 422 with the field's label for another text.
    """
    text = form.text(name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not lowest <= number <= highest:
        raise invalid(label, f"enter a number from {lowest:,g} to {highest:,g}")
    return number


def count_in(form: Form, name: str, label: str, lowest: int, highest: int) -> int | None:
    """As `number_in`, for a whole number."""
    number = number_in(form, name, label, lowest, highest)
    return None if number is None else int(number)


def source_in(visit: Visit, form: Form, configured: Collection[str]) -> str:
    """Return the chosen source, or the only source of the visitor.

    Raises:
        Problem: 404 for a source that the visitor may not see, 422 if several may be meant.
    """
    permitted = visit.permitted(sorted(configured))
    if form.has("source"):
        return _permitted(form.text("source"), permitted)
    if len(permitted) == 1:
        return permitted[0]
    raise invalid("source", "choose one source")


def sources_in(visit: Visit, form: Form, configured: Collection[str]) -> list[str]:
    """Return the chosen sources, or all that the visitor may see.

    Raises:
        Problem: 404 for a source that the visitor may not see.
    """
    permitted = visit.permitted(sorted(configured))
    # In a choice of sources, the empty value stands for all, unless a source has no name.
    chosen = [name for name in form.texts("source") if name or "" in configured]
    return [_permitted(name, permitted) for name in dict.fromkeys(chosen)] or permitted


def order_id_in(form: Form) -> str:
    """Return an order ID.

    Raises:
        Problem: 422 for another text.
    """
    try:
        return parse_order_id(form.text("id"))
    except InvalidOrderId as error:
        raise Problem(422, "invalid_order_id", str(error)) from error


def job_id_in(form: Form) -> int:
    """Return the ID of a job.

    Raises:
        Problem: 404 for another text.
    """
    text = form.text("id")
    if not is_number(text):
        raise Problem(404, "no_such_job", "there is no such job")
    return int(text)


def cursor_in(form: Form, kind: Any) -> Any:
    """Return the position where the page begins, or None for the first page.

    Raises:
        Problem: 422 if no page has linked to this one.
    """
    text = form.text("cursor")
    return decoded_cursor(text, kind) if text else None


def attributes_in(form: Form, example: str) -> tuple[tuple[str, str], ...]:
    """Return the attributes in the fields `attribute`, such as `example`.

    Raises:
        Problem: 422 for another text.
    """
    given = [text.strip().partition("=") for text in form.texts("attribute") if text.strip()]
    if not all(name and separator for name, separator, _ in given):
        raise invalid("Attribute", f"enter a name and a value, such as {example}")
    return tuple((name, value) for name, _, value in given)


def choices_of(names: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return the options of a choice of sources, if there are several."""
    return [("", "All sources"), *((name, name) for name in names)] if len(names) > 1 else []


def hidden(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the hidden fields that repeat these values in a form. None and empty values are omitted."""
    fields: list[tuple[str, str]] = []
    for name, value in values.items():
        several = value if isinstance(value, list | tuple) else [value]
        fields += [(name, str(each)) for each in several if each is not None and each != ""]
    return fields


def invalid(label: str, problem: str) -> Problem:
    """Return the problem of a field."""
    return Problem(422, "invalid_field", f"{label}: {problem}")


def _permitted(name: str, permitted: Collection[str]) -> str:
    if name not in permitted:
        raise Problem(404, "unknown_source", "there is no such source, or your key is limited to others")
    return name
