"""Analyses the metrics in a query in PromQL, and the parts that must return a result while the service works."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import promql_parser as parser

_COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}
_SET_OPERATORS = {"and", "or", "unless"}
_ABSENCE = {"absent", "absent_over_time"}
_OFFSET = re.compile(r" offset -?\w+")


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric in a query.

    Attributes:
        matchers: operator and value by label, such as `("=~", "a|b")`.
    """

    metric: str
    matchers: dict[str, tuple[str, str]]


def selectors(query: str) -> list[Selector]:
    """Every metric that the query reads.

    Raises:
        ValueError: the query is not valid PromQL.
    """
    return [
        Selector(
            node.name or "", {matcher.name: (_operator(matcher), matcher.value) for matcher in node.matchers.matchers}
        )
        for node in _nodes(parser.parse(query))
        if isinstance(node, parser.VectorSelector)
    ]


def functions_of(query: str) -> set[tuple[str, str]]:
    """Each metric with the function that is applied directly to its range, as `("x_total", "rate")`."""
    return {
        (argument.vector_selector.name, node.func.name)
        for node in _nodes(parser.parse(query))
        if isinstance(node, parser.Call)
        for argument in node.args
        if isinstance(argument, parser.MatrixSelector)
    }


def groupings(query: str) -> list[tuple[set[str], set[str]]]:
    """The labels of each `by (…)` and `without (…)`, with the metrics that they are looked for on."""
    return [
        (set(node.modifier.labels), {selector.metric for selector in selectors(node.expr.prettify())})
        for node in _nodes(parser.parse(query))
        if isinstance(node, parser.AggregateExpr) and node.modifier is not None
    ]


def parts_with_data(query: str) -> list[str]:
    """The largest parts of the query that return a result whenever the service works.

    An alert returns no result while all is well, and neither does an alert with a typing mistake. Therefore, the
    conditions are removed: a comparison, `and`, `unless` and `absent` are replaced by their operands, and an offset may
    reach back to before the start of the service. Each side of an `or` has to return a result, because one side would
    hide the other.
    """
    return [_OFFSET.sub("", part) for part in dict.fromkeys(_parts(parser.parse(query)))]


def _parts(node: Any) -> Iterator[str]:
    if isinstance(node, parser.BinaryExpr) and str(node.op) == "or" and node.rhs.prettify().startswith("0 * "):
        # The left side is empty until something has happened that may never happen, for which the right side has a zero.
        yield from _parts(node.rhs)
    elif any(_may_be_empty(inner) for inner in _nodes(node)):
        for child in _children(node):
            yield from _parts(child)
    elif isinstance(node, parser.MatrixSelector):
        # A range is only valid as an argument of a function.
        yield f"count_over_time({node.prettify()})"
    elif any(isinstance(inner, parser.VectorSelector) for inner in _nodes(node)):
        yield node.prettify()


def _may_be_empty(node: Any) -> bool:
    match node:
        case parser.BinaryExpr():
            returns_bool = node.modifier is not None and node.modifier.return_bool
            return str(node.op) in _SET_OPERATORS or (str(node.op) in _COMPARISONS and not returns_bool)
        case parser.Call():
            return node.func.name in _ABSENCE
        case _:
            return False


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    match node:
        case parser.BinaryExpr():
            return [node.lhs, node.rhs]
        case parser.Call():
            return list(node.args)
        case parser.AggregateExpr() | parser.ParenExpr() | parser.SubqueryExpr() | parser.UnaryExpr():
            return [node.expr]
        case parser.MatrixSelector():
            return [node.vector_selector]
        case _:
            return []


def _operator(matcher: Any) -> str:
    return str(matcher).removeprefix(matcher.name).partition('"')[0]
