"""Parses and executes queries of GraphQL on trees of dictionaries, with the cost in points as Shopify calculates it.

It supports queries with variables, arguments, aliases and fragments, which is what clients of an order API send. There is
no schema. A field exists if the tree contains it, and a connection is a `Connection` in the tree.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Arguments = Mapping[str, Any]
Resolver = Callable[[Arguments], Any]
"""A value in a tree that depends on arguments."""

_MOST = 250  # elements of a page
_LINEAR = 10  # elements up to which the cost of a connection grows with each of them
_TOKEN = re.compile(
    r'[\s,\ufeff]+|#[^\n]*|(?P<block>"""(?:[^"\\]|\\.|"(?!""))*""")|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[_A-Za-z]\w*)|(?P<sign>\.\.\.|[{}()\[\]:$!=@|])"
)


class QueryError(Exception):
    """The query is rejected.

    Attributes:
        code: machine-readable reason.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Field:
    """A selected field.

    Attributes:
        name: of the field.
        key: of its value in the response, which is the alias or the name.
        arguments: with variables replaced.
        fields: selected within its value.
    """

    name: str
    key: str
    arguments: Arguments
    fields: Sequence["Field"]

    @property
    def first(self) -> int:
        """Number of requested elements, or 1 for a field without pages."""
        wanted = self.arguments.get("first") or self.arguments.get("last")
        return int(wanted) if wanted else 1

    @property
    def is_connection(self) -> bool:
        """Whether the value comes in pages with nodes or edges."""
        return any(inner.name in {"nodes", "edges"} for inner in self.fields)


@dataclass(frozen=True, slots=True)
class Connection:
    """A list that comes in pages.

    Attributes:
        items: of the whole list.
        cursor: the position of an item, which stays valid when the list changes.
        after: the items after a position.
        render: makes the tree of an item, once it is on a page.
    """

    items: Sequence[Any]
    cursor: Callable[[int, Any], str] = lambda index, _item: str(index)
    after: Callable[[Sequence[Any], str], Sequence[Any]] = lambda items, cursor: items[int(cursor) + 1 :]
    render: Callable[[Any], Any] = lambda item: item


@dataclass(slots=True)
class Result:
    """The outcome of a query.

    Attributes:
        data: the selected values.
        cost: actual cost in points.
    """

    data: dict[str, Any] = field(default_factory=dict)
    cost: float = 0.0


def parse(query: str, variables: Arguments) -> Sequence[Field]:
    """Parse a query, and return the selected fields.

    Raises:
        QueryError: it is no valid query.
    """
    return _Parser(query, variables).document()


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
    before, shown = len(connection.items) - len(rest), rest[:first]
    cursors = [connection.cursor(before + index, item) for index, item in enumerate(shown)]
    nodes = [connection.render(item) for item in shown]
    page = {
        "nodes": nodes,
        "edges": [{"node": node, "cursor": cursor} for node, cursor in zip(nodes, cursors, strict=True)],
        "pageInfo": {
            "hasNextPage": len(rest) > first,
            "hasPreviousPage": before > 0,
            "startCursor": cursors[0] if cursors else None,
            "endCursor": cursors[-1] if cursors else None,
        },
    }
    data = execute(selected.fields, page, "Connection").data
    return data, _cost(selected, len(shown))


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


class _Parser:
    """A parser by recursive descent."""

    def __init__(self, query: str, variables: Arguments) -> None:
        self._tokens = list(_tokens(query))
        self._at = 0
        self._variables = variables
        self._fragments: dict[str, Sequence[Field]] = {}

    def document(self) -> Sequence[Field]:
        # Fragments first, because operations use them before they are defined.
        starts = [index for index, word in enumerate(self._tokens) if word == "fragment" and self._depth(index) == 0]
        for start in reversed(starts):
            self._at = start + 1
            name = self._next()
            self._at += 2  # on Type
            self._fragments[name] = self._selections()
        self._at = 0
        if self._peek() in {"query", "{"}:
            while self._peek() != "{":
                if self._peek() == "(":
                    self._skip_definitions()
                else:
                    self._next()
            return self._selections()
        raise QueryError("only queries are supported", "parseError")

    def _depth(self, index: int) -> int:
        return self._tokens[:index].count("{") - self._tokens[:index].count("}")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        word = self._peek()
        if not word:
            raise QueryError("syntax error, unexpected end of file", "parseError")
        self._at += 1
        return word

    def _expect(self, wanted: str) -> None:
        if (word := self._next()) != wanted:
            raise QueryError(f"syntax error, unexpected {word!r}, expecting {wanted!r}", "parseError")

    def _skip_definitions(self) -> None:
        """Skip the declared variables, and set the default of each variable that is not given."""
        self._expect("(")
        given, name = dict(self._variables), ""
        while self._peek() != ")":
            word = self._next()
            if word == "$":
                name = self._next()
            elif word == "=":
                given.setdefault(name, self._value())
        self._expect(")")
        self._variables = given

    def _selections(self) -> Sequence[Field]:
        self._expect("{")
        fields: list[Field] = []
        while self._peek() != "}":
            if self._peek() == "...":
                self._next()
                if self._peek() == "on":
                    self._at += 2
                if self._peek() == "{":
                    fields += self._selections()
                else:
                    fields += self._fragments.get(self._next(), ())
            else:
                fields.append(self._field())
        self._expect("}")
        return fields

    def _field(self) -> Field:
        key = name = self._next()
        if self._peek() == ":":
            self._next()
            name = self._next()
        arguments: dict[str, Any] = {}
        if self._peek() == "(":
            self._next()
            while self._peek() != ")":
                argument = self._next()
                self._expect(":")
                arguments[argument] = self._value()
            self._next()
        return Field(name, key, arguments, self._selections() if self._peek() == "{" else ())

    def _value(self) -> Any:
        word = self._next()
        if word == "$":
            return self._variables.get(self._next())
        if word == "[":
            values = []
            while self._peek() != "]":
                values.append(self._value())
            self._next()
            return values
        if word.startswith('"""'):
            return word[3:-3]
        if word.startswith('"'):
            return re.sub(r"\\(.)", r"\1", word[1:-1])
        if word in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[word]
        return int(word) if re.fullmatch(r"-?\d+", word) else word


def _tokens(query: str) -> Iterator[str]:
    at = 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise QueryError(f"syntax error, unexpected {query[at]!r} at {at}", "parseError")
        at = match.end()
        if match.lastgroup is not None:
            yield match[0]
