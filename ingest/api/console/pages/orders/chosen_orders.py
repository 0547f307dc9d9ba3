"""The filter of stored orders in the query of a page, and in the forms and links that repeat it."""

from typing import Any

from ingest.api.console.forms import Form
from ingest.api.console.inputs import invalid, time_in, time_value
from ingest.domain.orders.order_filter import OrderFilter

_TEXTS = {"status": "Status", "customer_id": "Customer", "prefix": "ID begins with"}
_TIMES = {
    "stored_from": "Stored from",
    "stored_to": "Stored before",
    "placed_from": "Placed from",
    "placed_to": "Placed before",
}


def filter_in(form: Form) -> OrderFilter:
    """Return the chosen filter.

    Raises:
        Problem: 422 for an invalid value.
    """
    attributes = tuple(_attribute(text) for text in form.texts("attribute") if text.strip())
    times = {name: time_in(form, name, label) for name, label in _TIMES.items()}
    return OrderFilter(
        status=form.text("status") or None,
        customer_id=form.text("customer_id") or None,
        prefix=form.text("prefix") or None,
        stored_from=times["stored_from"],
        stored_to=times["stored_to"],
        placed_from=times["placed_from"],
        placed_to=times["placed_to"],
        attributes=attributes,
    )


def values_of(selection: OrderFilter) -> dict[str, Any]:
    """Return the filter as the values of links and hidden fields."""
    texts = {name: getattr(selection, name) for name in _TEXTS}
    times = {name: time_value(getattr(selection, name)) for name in _TIMES}
    return {**texts, **times, "attribute": [f"{name}={value}" for name, value in selection.attributes]}


def described(selection: OrderFilter) -> list[tuple[str, Any]]:
    """Return the labels and the values of the chosen criteria."""
    labels = {**_TEXTS, **_TIMES}
    given = [(labels[name], getattr(selection, name)) for name in labels if getattr(selection, name)]
    return [*given, *(("Attribute", f"{name} = {value}") for name, value in selection.attributes)]


def _attribute(text: str) -> tuple[str, str]:
    name, separator, value = text.strip().partition("=")
    if not (name and separator):
        raise invalid("Attribute", "enter a name and a value, such as channel=web")
    return name, value
