"""Parses queries of GraphQL with variables, arguments, aliases and fragments, which clients of an order API send."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Arguments = Mapping[str, Any]

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


def parse(query: str, variables: Arguments) -> Sequence[Field]:
    """Parse a query, and return the selected fields.

    Raises:
        QueryError: it is no valid query.
    """
    return _Parser(query, variables).document()


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
