"""Makes the rules for responses of a source from its setting `responses`, a JSON array of tables."""

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ingest.domain.durations import parse_duration
from ingest.domain.errors import ConfigError
from ingest.domain.fetch.request_headers import check_header_name
from ingest.domain.fetch.response_body import EACH, Scalar, Steps, member_reader
from ingest.domain.fetch.response_rules import (
    BodyCondition,
    Delay,
    HeaderCondition,
    Meaning,
    ResponseRule,
    TextPattern,
    ValueTest,
)
from ingest.domain.fetch.status_overrides import LONGEST
from ingest.domain.toml_errors import Keys, TableProblem, describe_error, dotted
from ingest.mapping.compiled import paths
from ingest.mapping.errors import MappingError

if TYPE_CHECKING:
    from ingest.settings import Settings

_STATUS = re.compile(r"(?P<class>[2-5])xx|(?P<first>[2-5][0-9]{2})(?:-(?P<last>[2-5][0-9]{2}))?")
_FORM = 'write a status, a class such as "2xx", a range such as "500-504", or a list of these'
_UNITS = {"seconds": 1.0, "milliseconds": 0.001}
_DELAYED = frozenset({Meaning.RETRY, Meaning.THROTTLED})

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST)]
_Status = int | str


class _HeaderTable(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    present: bool | None = None
    equals: str | int | list[str | int] | None = None
    pattern: str | list[str] | None = None


class _BodyTable(msgspec.Struct, forbid_unknown_fields=True):
    path: str | None = None
    present: bool | None = None
    null: Literal[True] | None = None
    equals: Scalar | list[Scalar] | None = None
    every: Scalar | list[Scalar] | None = None
    pattern: str | list[str] | None = None


class _RuleTable(msgspec.Struct, forbid_unknown_fields=True):
    meaning: Meaning
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=60)] | None = None
    status: _Status | list[_Status] | None = None
    header: _HeaderTable | list[_HeaderTable] | None = None
    body: _BodyTable | list[_BodyTable] | None = None
    delay: _Seconds | str | None = None
    delay_path: str | None = None
    delay_header: str | None = None
    delay_unit: Literal["seconds", "milliseconds"] | None = None


class _Mistake(TableProblem):
    """A mistake in a rule, and where it is."""

    def __init__(self, problem: str, *keys: str | int) -> None:
        super().__init__(problem, keys)


def response_rules_of(settings: "Settings") -> tuple[ResponseRule, ...]:
    """Return the rules for responses of a source.

    Raises:
        ConfigError: a rule cannot be used. The message contains its key.
    """
    tables: Any = json.loads(settings.responses or "[]")
    rules = []
    for index, table in enumerate(tables):
        try:
            rules.append(_rule_of(f"responses[{index}]", _converted(table)))
        except _Mistake as mistake:
            raise _error_of(settings, mistake.problem, ("responses", index, *mistake.keys)) from None
    return tuple(rules)


def _error_of(settings: "Settings", problem: str, keys: Keys) -> ConfigError:
    if settings.source:
        from ingest.settings.source_file import problem_in_source  # noqa: PLC0415  only for a mistake

        return problem_in_source(settings, problem, keys)
    return ConfigError(f"INGEST_RESPONSES: {dotted(keys[1:])}: {problem}")


def _converted(table: Any) -> _RuleTable:
    try:
        return msgspec.convert(table, _RuleTable)
    except msgspec.ValidationError as error:
        problem, keys = describe_error(str(error), (), _known_keys)
        if keys == ("meaning",) and "enum" in problem:
            problem = f"must be one of {', '.join(Meaning)}"
        raise _Mistake(problem, *keys) from None


def _known_keys(keys: Keys) -> tuple[str, ...]:
    tables: dict[Any, type[msgspec.Struct]] = {"header": _HeaderTable, "body": _BodyTable}
    return tables.get(keys[0] if keys else None, _RuleTable).__struct_encode_fields__


def _rule_of(name: str, table: _RuleTable) -> ResponseRule:
    if table.name is not None and not table.name.isprintable():
        raise _Mistake("contains a character that cannot be printed", "name")
    rule = ResponseRule(
        table.name or name,
        table.meaning,
        statuses=tuple(_statuses(status) for status in _as_list(table.status)),
        headers=tuple(_header(each, *_place("header", table.header, n)) for n, each in _numbered(table.header)),
        body=tuple(_body(each, *_place("body", table.body, n)) for n, each in _numbered(table.body)),
        delay=_delay(table),
    )
    if not (rule.statuses or rule.headers or rule.body):
        raise _Mistake("needs a condition: `status`, `header` or `body`")
    return rule


def _statuses(given: _Status) -> range:
    found = _STATUS.fullmatch(str(given).lower())
    if found is None:
        raise _Mistake(f"{given!r} is not a status: {_FORM}", "status")
    if found["class"]:
        first = int(found["class"]) * 100
        return range(first, first + 100)
    statuses = range(int(found["first"]), int(found["last"] or found["first"]) + 1)
    if not statuses:
        raise _Mistake(f"{given!r} is not a status: {_FORM}", "status")
    return statuses


def _header(table: _HeaderTable, *keys: str | int) -> HeaderCondition:
    try:
        # A response may have headers that a request may not.
        if not re.fullmatch(r"[A-Za-z-]+", table.name):
            check_header_name(table.name)
    except ValueError as error:
        raise _Mistake(str(error), *keys, "name") from None
    equals = None if table.equals is None else tuple(str(value) for value in _as_list(table.equals))
    return HeaderCondition(table.name, _test(table.present, equals, table.pattern, keys))


def _body(table: _BodyTable, *keys: str | int) -> BodyCondition:
    if table.every is not None and any(
        each is not None for each in (table.present, table.null, table.equals, table.pattern)
    ):
        raise _Mistake("contains `every` and another condition", *keys)
    values = table.equals if table.every is None else table.every
    equals = None if values is None else tuple(_as_list(values))
    test = _test(table.present, equals, table.pattern, keys, is_null=bool(table.null))
    if table.every is not None:
        test = msgspec.structs.replace(test, is_for_every=True)
    if table.path is not None:
        return BodyCondition(_steps(table.path, *keys, "path"), test)
    if table.pattern is None or table.present is not None or table.null or equals is not None:
        raise _Mistake("needs the key `path`, or only a `pattern` for the whole body as text", *keys)
    return BodyCondition(None, test)


def _test(
    present: bool | None,  # noqa: FBT001  as it is in the file
    equals: tuple[Scalar, ...] | None,
    pattern: str | list[str] | None,
    keys: Keys,
    *,
    is_null: bool = False,
) -> ValueTest:
    if present is None and equals is None and pattern is None and not is_null:
        raise _Mistake("needs a condition: one of `present`, `equals`, `pattern`, and for a body `null`", *keys)
    if (present is False or is_null) and (present is True or equals is not None or pattern is not None):
        raise _Mistake("contains conditions that cannot hold together", *keys)
    patterns = None if pattern is None else tuple(TextPattern.of(each) for each in _as_list(pattern))
    return ValueTest(present, is_null, equals, patterns)


def _delay(table: _RuleTable) -> Delay:
    fixed = table.delay
    given = [key for key in ("delay", "delay_path", "delay_header", "delay_unit") if getattr(table, key) is not None]
    if given and table.meaning not in _DELAYED:
        raise _Mistake(f"only {' and '.join(sorted(_DELAYED))} support a delay", given[0])
    if table.delay_path is not None and table.delay_header is not None:
        raise _Mistake("set together with `delay_path`: remove one of them", "delay_header")
    if table.delay_unit is not None and table.delay_path is None and table.delay_header is None:
        raise _Mistake("needs `delay_path` or `delay_header`", "delay_unit")
    if isinstance(fixed, str):
        try:
            fixed = parse_duration(fixed)
        except ValueError as error:
            raise _Mistake(str(error), "delay") from None
        if not 0 < fixed <= LONGEST:
            raise _Mistake("must be more than 0 and at most 30 days", "delay")
    steps = None if table.delay_path is None else _steps(table.delay_path, "delay_path")
    return Delay(fixed, steps, table.delay_header, _UNITS[table.delay_unit or "seconds"])


def _steps(text: str, *keys: str | int) -> Steps:
    try:
        path = paths.parse_path(text)
    except MappingError as error:
        raise _Mistake(error.problem, *keys) from None
    steps = tuple(EACH if step == paths.EACH else step for step in path.steps)
    try:
        for step in steps:
            if isinstance(step, str):
                member_reader(step)
    except ValueError:
        raise _Mistake(f"{text!r} contains a key that cannot be read", *keys) from None
    return steps


def _as_list(given: Any) -> list[Any]:
    return [] if given is None else given if isinstance(given, list) else [given]


def _numbered(given: Any) -> list[tuple[int, Any]]:
    return list(enumerate(_as_list(given)))


def _place(key: str, given: Any, number: int) -> Keys:
    return (key, number) if isinstance(given, list) else (key,)
