"""Finds the line of each key in a TOML file, because the standard library's parser does not report lines.

The file has already been parsed, so it is valid TOML.
"""

import re
from collections.abc import Iterator

Keys = tuple[str | int, ...]

_TOKEN = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<newline>\n)"
    r'|(?P<string>"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<mark>[\[\]{}=,])"
    r"|(?P<bare>[^\s\[\]{}=,\#\"']+)",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Keys, int]:
    """Return the line (from 1) of each table, key and list element, by its keys from the top."""
    return _Finder(text).find()


class _Finder:
    """Reads the tokens of one file in sequence."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("end", "", text.count("\n") + 1)]
        self._position = 0
        self._lines: dict[Keys, int] = {}
        # The number of tables read so far for each [[array]].
        self._counts: dict[Keys, int] = {}

    def find(self) -> dict[Keys, int]:
        table: Keys = ()
        while (kind := self._peek()[0]) != "end":
            if kind == "newline":
                self._next()
            elif self._peek()[1] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._position]

    def _next(self) -> tuple[str, str, int]:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _header(self) -> Keys:
        line = self._next()[2]
        is_array = self._peek()[1] == "["
        if is_array:
            self._next()
        names = self._key("]")
        if is_array:
            self._next()
        keys: Keys = ()
        for name in names:
            keys = (*keys, name)
            if keys != names:
                # A table without a header begins at its first subtable.
                self._lines.setdefault(keys, line)
            if keys in self._counts and keys != names:
                keys = (*keys, self._counts[keys] - 1)
        if is_array:
            count = self._counts[keys] = self._counts.get(keys, 0) + 1
            self._lines.setdefault(keys, line)
            keys = (*keys, count - 1)
        self._lines[keys] = line
        return keys

    def _key(self, end: str) -> Keys:
        """Read a dotted key and the mark that follows it."""
        names: list[str] = []
        while self._peek()[1] != end:
            kind, token, _ = self._next()
            names += [token[1:-1]] if kind == "string" else [name for name in token.split(".") if name]
        self._next()
        return tuple(names)

    def _pair(self, table: Keys) -> None:
        line = self._peek()[2]
        keys = table
        for name in self._key("="):
            keys = (*keys, name)
            self._lines.setdefault(keys, line)
        self._value(keys)

    def _value(self, keys: Keys) -> None:
        self._skip_newlines()
        _, text, line = self._next()
        if text == "[":
            self._elements(keys)
        elif text == "{":
            self._pairs(keys)
        else:
            # A date and a time may be two tokens.
            while self._peek()[0] == "bare" and self._peek()[2] == line:
                self._next()

    def _elements(self, keys: Keys) -> None:
        index = 0
        while not self._at("]"):
            self._lines[(*keys, index)] = self._peek()[2]
            self._value((*keys, index))
            index += 1
        self._next()

    def _pairs(self, keys: Keys) -> None:
        while not self._at("}"):
            self._pair(keys)
        self._next()

    def _at(self, end: str) -> bool:
        self._skip_newlines()
        while self._peek()[1] == ",":
            self._next()
            self._skip_newlines()
        return self._peek()[1] == end

    def _skip_newlines(self) -> None:
        while self._peek()[0] == "newline":
            self._next()


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    line = 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "comment":
            yield match.lastgroup or "", match[0], line
        line += match[0].count("\n")
