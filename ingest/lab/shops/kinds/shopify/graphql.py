"""Executes queries of GraphQL on trees of dictionaries, with the cost in points as Shopify calculates it.

There is no schema. A field exists if the tree contains it, and a connection is a `Connection` in the tree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.lab.shops.kinds.shopify.graphql_query import Field, QueryError
from ingest.lab.shops.list_page import ListPage, plain_page

_MOST = 250  # elements of a page
_LINEAR = 10  # elements up to which the cost of a connection grows with each of them


@dataclass(frozen=True, slots=True)
class Connection:
    """A list that comes in pages.

    Attributes:
        items: of the whole list.
        cursor: the position of an item, which stays valid when the list changes.
        after: the items after a position.
        render: makes the tree of an item, once it is on a page.
        page: cuts a page from the items, given the place of its first item and its size.
    """

    items: Sequence[Any]
    cursor: Callable[[int, Any], str] = lambda index, _item: str(index)
    after: Callable[[Sequence[Any], str], Sequence[Any]] = lambda items, cursor: items[int(cursor) + 1 :]
    render: Callable[[Any], Any] = lambda item: item
    page: Callable[[Sequence[Any], int, int], ListPage[Any]] = plain_page


@dataclass(slots=True)
class Result:
    """The outcome of a query.

    Attributes:
        data: the selected values.
        cost: actual cost in points.
    """

    data: dict[str, Any] = field(default_factory=dict)
    cost: float = 0.0


def requested_cost(fields: Sequence[Field]) -> float:
    """Return the highest possible cost of a query."""
    return sum(_cost(each, each.first) for each in fields)


def execute(fields: Sequence[Field], tree: Mapping[str, Any], kind: str = "QueryRoot") -> Result:
    """Select the fields from a tree.

    Args:
        fields: selected.
        tree: the values by name. A function is called with the arguments of the field.
        kind: name of the tree's type, for errors.

    Raises:
        QueryError: a field does not exist, or an argument is invalid.
    """
    result = Result()
    for each in fields:
        if each.name == "__typename":
            result.data[each.key] = tree.get("__typename", kind)
            continue
        if each.name not in tree:
            raise QueryError(f"Field '{each.name}' doesn't exist on type '{kind}'", "undefinedField")
        value = tree[each.name]
        if callable(value):
            value = value(each.arguments)
        result.data[each.key], cost = _selected(each, value)
        result.cost += cost
    return result


def _selected(selected: Field, value: Any) -> tuple[Any, float]:
    if isinstance(value, Connection):
        return _page(selected, value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        results = [_selected(selected, item) for item in value]
        return [data for data, _ in results], sum(cost for _, cost in results)
    if isinstance(value, Mapping):
        result = execute(selected.fields, value, value.get("__typename", selected.name[:1].upper() + selected.name[1:]))
        return result.data, 1 + result.cost
    return value, 0


def _page(selected: Field, connection: Connection) -> tuple[dict[str, Any], float]:
    first = selected.arguments.get("first")
    if not isinstance(first, int) or not 0 < first <= _MOST:
        raise QueryError(f"you must provide a first between 1 and {_MOST} for '{selected.name}'", "BAD_REQUEST")
    cursor = selected.arguments.get("after")
    try:
        rest = connection.items if cursor is None else connection.after(connection.items, cursor)
    except ValueError:
        raise QueryError("Invalid cursor for current pagination sort.", "BAD_REQUEST") from None
    cut = connection.page(connection.items, len(connection.items) - len(rest), first)
    cursors = [connection.cursor(cut.start + index, item) for index, item in enumerate(cut.shown)]
    nodes = [connection.render(item) for item in cut.shown]
    last = connection.cursor(cut.start + len(cut.selected) - 1, cut.selected[-1]) if cut.selected else None
    page = {
        "nodes": nodes,
        "edges": [{"node": node, "cursor": cursor} for node, cursor in zip(nodes, cursors, strict=True)],
        "pageInfo": {
            "hasNextPage": cut.has_more,
            "hasPreviousPage": cut.start > 0,
            "startCursor": cursors[0] if cursors else None,
            "endCursor": last,
        },
    }
    data = execute(selected.fields, page, "Connection").data
    return data, _cost(selected, len(cut.shown))


def _cost(selected: Field, count: int) -> float:
    """Shopify's connections cost less for each further element, which its documentation does not quantify."""
    if not selected.fields:
        return 0
    if not selected.is_connection:
        return count * (1 + requested_cost(selected.fields))
    inner = [each for each in selected.fields if each.name in {"nodes", "edges"}]
    element = sum(1 + requested_cost(_node_fields(each)) for each in inner)
    scaled = min(count, _LINEAR) + max(0, count - _LINEAR) / 240
    return round(2 + scaled * element)


def _node_fields(selected: Field) -> Sequence[Field]:
    if selected.name == "nodes":
        return selected.fields
    return [inner for each in selected.fields if each.name == "node" for inner in each.fields]
