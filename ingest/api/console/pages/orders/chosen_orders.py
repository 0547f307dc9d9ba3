"""The filter of stored orders in the query of a page, and in the forms and links that repeat it."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from ingest.api.console.forms import Form
from ingest.api.console.frame import Frame, Visit
from ingest.api.console.inputs import attributes_in, time_in, time_value
from ingest.domain.orders.order_filter import CRITERIA, OrderFilter

_LABELS = {name: each.label for name, each in CRITERIA.items() if each.label is not None}


def filter_in(form: Form) -> OrderFilter:
    """Return the chosen filter.

    Raises:
        Problem: 422 for an invalid value.
    """
    criteria: dict[str, Any] = {
        name: time_in(form, name, label) if CRITERIA[name].is_time else form.text(name) or None
        for name, label in _LABELS.items()
    }
    return OrderFilter(**criteria, attributes=attributes_in(form, "channel=web"))


def values_of(selection: OrderFilter) -> dict[str, Any]:
    """Return the filter as the values of links and hidden fields."""
    given = {name: getattr(selection, name) for name in _LABELS}
    values = {name: time_value(value) if CRITERIA[name].is_time else value for name, value in given.items()}
    return {**values, "attribute": [f"{name}={value}" for name, value in selection.attributes]}


def described(selection: OrderFilter) -> list[tuple[str, Any]]:
    """Return the labels and the values of the chosen criteria."""
    given = [(label, getattr(selection, name)) for name, label in _LABELS.items() if getattr(selection, name)]
    return [*given, *(("Attribute", f"{name} = {value}") for name, value in selection.attributes)]


def choose_source(
    frame: Frame, visit: Visit, path: str, names: Sequence[str], selection: OrderFilter
) -> web.StreamResponse:
    """Return the page on which the visitor chooses one source for an action on these orders."""
    choices = [(name, name) for name in names] if len(names) > 1 else []
    values, criteria = values_of(selection), described(selection)
    return frame.render(
        visit, "orders/choose_source.html", path=path, choices=choices, values=values, criteria=criteria
    )
