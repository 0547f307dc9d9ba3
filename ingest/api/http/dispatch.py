"""Finds the route of a request: by the path as it was sent, so that an encoded slash is none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import unquote

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Found(Generic[_T]):
    """What there is at a path.

    Attributes:
        methods: what answers, by method.
        variables: the parts of the path that the route names.
    """

    methods: Mapping[str, _T]
    variables: Mapping[str, str]


@dataclass(slots=True)
class _Node(Generic[_T]):
    """The routes that share the path so far."""

    children: dict[str, "_Node[_T]"] = field(default_factory=dict)
    variable: str = ""
    any_child: "_Node[_T] | None" = None
    methods: dict[str, _T] = field(default_factory=dict)


class Table(Generic[_T]):
    """Routes by their paths; a part of a path that is written `{name}` stands for any one part.

    Args:
        routes: path, method and what answers.
    """

    def __init__(self, routes: Iterable[tuple[str, str, _T]]) -> None:
        self._root: _Node[_T] = _Node()
        self._fixed: dict[str, Found[_T]] = {}
        for path, method, target in routes:
            node = self._node(path)
            if method in node.methods:
                raise ValueError(f"two routes for {method} {path}")
            node.methods[method] = target
            if method == "GET":
                node.methods.setdefault("HEAD", target)
            if "{" not in path:
                self._fixed[path] = Found(node.methods, {})

    def find(self, raw_path: str) -> Found[_T] | None:
        """What there is at a path, which may have percent-encoded parts; None if there is nothing."""
        if found := self._fixed.get(raw_path):
            return found
        node, variables = self._root, {}
        for part in raw_path.removeprefix("/").split("/"):
            if (child := node.children.get(part)) is not None:
                node = child
            elif node.any_child is not None and part:
                variables[node.variable] = unquote(part) if "%" in part else part
                node = node.any_child
            else:
                return None
        return Found(node.methods, variables) if node.methods else None

    def _node(self, path: str) -> _Node[_T]:
        node = self._root
        for part in path.removeprefix("/").split("/"):
            if part.startswith("{"):
                name = part.strip("{}")
                if node.variable not in {"", name}:
                    raise ValueError(f"two names for one part of {path}")
                node.variable = name
                node.any_child = node.any_child or _Node()
                node = node.any_child
            else:
                node = node.children.setdefault(part, _Node())
        return node
