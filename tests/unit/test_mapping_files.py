"""A mapping file that cannot be used is rejected at the start with one line that names the line and the field."""

import os
import re
from pathlib import Path

import pytest

from ingest.domain.errors import ConfigError
from ingest.domain.toml_errors import Keys, line_of
from ingest.mapping.compiled.declaration import Condition, Field, LineFields, MappingFile, OrderFields, PartDeclaration
from ingest.mapping.errors import MappingError
from ingest.mapping.load import compile_mapping, load_mapping

DOCS = Path(__file__).parents[2] / "docs"
SOUND = """\
# A comment.
[order]
id = "id"
status = "status"
placed_at = { path = "at", zone = "UTC" }
currency = "currency"

[[lines]]
from = "items"
sku = "sku"
quantity = "quantity"
unit_price = "price"

[[lines]]
from = "shipping"
sku = { value = "SHIPPING" }
quantity = { value = 1 }
unit_price = "price"

[attributes]
note = "note"
"""


def refused(tmp_path: Path, old: str, new: str) -> str:
    """The error for the valid file with a change."""
    assert old in SOUND
    file = tmp_path / "shop.toml"
    file.write_text(SOUND.replace(old, new, 1))
    with pytest.raises(ConfigError) as error:
        load_mapping(str(file))
    assert error.value.exit_code == 2
    return str(error.value).replace(str(file), "shop.toml")


def test_a_sound_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(SOUND)

    assert load_mapping(str(tmp_path / "shop.toml")).parts == []


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("[order]", "[order", "not TOML: Expected ']' at the end of a table declaration (at line 2, column 7)"),
        ('status = "status"\n', "", "line 2, order: needs the key `status`"),
        ('[order]\nid = "id"', '[orders]\nid = "id"', "line 2, orders: unknown key `orders`; did you mean `order`?"),
        ('"id"', "7", "line 3, order.id: Expected `str | object`, got `int`"),
        ('"id"', '{ pth = "id" }', "line 3, order.id.pth: unknown key `pth`; did you mean `path`?"),
        ('"id"', "{ requested = true, html = true }", "line 3, order.id: `requested` cannot be combined with other"),
        ('"status"', '"a..b"', "line 4, order.status.path: 'a..b' is not a path: write keys, indexes and []"),
        ('"status"', '""', "line 4, order.status: needs exactly one of `path`, `jmespath`, `value`"),
        ('"status"', '"items[].x"', "line 4, order.status.path: a path with [] leads to a list of values"),
        ('"status"', '{ path = "a", value = "b" }', "line 4, order.status: needs exactly one of"),
        ('"status"', '{ path = "a", zone = "UTC" }', "line 4, order.status.zone: `zone` requires the type `timestamp`"),
        ('"status"', '{ path = "a", type = "txt" }', "line 4, order.status.type: Invalid enum value 'txt'"),
        ('"status"', '{ path = "a", type = "integer" }', "line 4, order.status.type: `type` requires an attribute,"),
        (
            '"status"',
            '{ concat = [{ path = "a", type = "integer" }] }',
            "line 4, order.status.concat[0].type: `type` requires an attribute, but this field is `text`",
        ),
        (
            '"note"',
            '{ concat = [{ path = "notes[].text" }] }',
            "line 21, attributes.note.concat[0].path: a path with [] leads to a list of values, but a single value is required",
        ),
        (
            '"price"\n\n[att',
            '{ path = "p", type = "text" }\n[att',
            "line 18, lines[1].unit_price.type: `type` requires an attribute, but this field is `decimal`",
        ),
        ('"status"', "{ requested = true }", "line 4, order.status.requested: `requested` is only for `id` of [order]"),
        ('"status"', '{ path = "a", otherwise = "b" }', "line 4, order.status.otherwise: `otherwise` needs `values`"),
        ('"status"', '{ path = "a", when = { path = "b" } }', "line 4, order.status.when: `when` is only for the"),
        (
            '"status"',
            '{ cases = [\n  { when = { path = "b" }, value = "c" },\n] }',
            "line 5, order.status.cases[0].when: a condition needs one of `present`, `equals` and `differs`",
        ),
        (
            '"status"',
            '{ first = [\n  "a",\n  { path = "b", html = 1 },\n] }',
            "line 6, order.status.first[1].html: Expected `bool`, got `int`",
        ),
        ('"UTC"', '"Mars/Olympus"', "line 5, order.placed_at.zone: unknown time zone 'Mars/Olympus': write UTC,"),
        ('"UTC"', '"+25:00"', "line 5, order.placed_at.zone: unknown time zone '+25:00'"),
        (
            'zone = "UTC"',
            'zone = "UTC", format = "unix"',
            "line 5, order.placed_at.zone: `zone` is for local times",
        ),
        ('zone = "UTC"', 'default = "soon"', "line 5, order.placed_at.default: got a `str` that is not a timestamp"),
        ('"currency"', '{ jmespath = "a[" }', "line 6, order.currency.jmespath: not a JMESPath expression:"),
        ('"currency"', '{ jmespath = "a.f(b)" }', "line 6, order.currency.jmespath: unknown JMESPath function f()"),
        ('"currency"', '"a\\u0000b"', "line 6, order.currency: a text contains a NUL character"),
        (
            '"currency"',
            '{ jmespath = "not_null(a, &b)" }',
            "line 6, order.currency.jmespath: & is only for the functions",
        ),
        (
            '"note"',
            '{ jmespath = "[map(&a, b), &c]" }',
            "line 21, attributes.note.jmespath: & is only for the functions",
        ),
        ('"note"', '{ jmespath = "`[1e999]`" }', "line 21, attributes.note.jmespath: a number that is not finite"),
        (
            '"note"',
            r"""{ jmespath = 'note || `"\ud800"`' }""",
            "line 21, attributes.note.jmespath: a text contains half of a surrogate pair",
        ),
        ("{ value = 1 }", "{ value = inf }", "line 17, lines[1].quantity.value: a number that is not finite"),
        ('"note"', '{ path = "note", none = [nan] }', "line 21, attributes.note.none[0]: a number that is not finite"),
        ("{ value = 1 }", f"{{ value = {'1' * 5_000} }}", "not TOML: Exceeds the limit (4300 digits) for integer"),
        ('from = "items"', 'from = "items"\njmespath = "i"', "line 8, lines[0]: contains both `from` and `jmespath`"),
        ('sku = "sku"', 'sky = "sku"', "line 10, lines[0].sky: unknown key `sky`; did you mean `sku`?"),
        ("{ value = 1 }", "{ value = true }", "line 17, lines[1].quantity.value: expected a decimal, got `bool`"),
        ('"price"\n\n[att', '{ path = "p", digits = 2 }\n[att', "line 18, lines[1].unit_price.digits: `digits` needs"),
        ('"note"', '{ path = "note", minor_units = 19 }', "line 21, attributes.note.minor_units: Expected `int` <= 18"),
        (
            '"note"',
            '{ path = "n", type = "json", html = true }',
            "line 21, attributes.note.html: `html` requires the type",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_field(tmp_path: Path, old: str, new: str, error: str) -> None:
    said = refused(tmp_path, old, new)

    assert said.startswith(f"INGEST_MAPPING: shop.toml{':' if error.startswith('not TOML') else ','} {error}")
    assert "\n" not in said


def test_a_file_without_lines_is_refused() -> None:
    with pytest.raises(MappingError, match="needs at least one"):
        compile_mapping("lines = []\n" + SOUND[: SOUND.index("[[lines]]")])


def test_a_file_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(MappingError, match=r"nested too deeply|TOML key has more than"):  # the latter since Python 3.14
        compile_mapping(f"{SOUND}x.value.{'.'.join(['y'] * 3_000)} = 1\n")


@pytest.mark.parametrize("name", ["integer", "decimal"])
def test_a_quantity_may_be_converted_like_another_number(name: str) -> None:
    mapping = compile_mapping(SOUND.replace('"quantity"', f'{{ path = "q", type = "{name}" }}', 1))
    body = b'{"id": "a", "status": "b", "at": "2024-05-06", "currency": "EUR", "items": [{"sku": "c", "q": 2, "price": 3}],'

    assert mapping.decode(body + b'"shipping": []}', "a").lines[0].quantity == 2


def test_a_file_that_is_too_large_is_told(tmp_path: Path) -> None:
    (tmp_path / "large.toml").write_bytes(b"#" * (1024 * 1024 + 1))

    with pytest.raises(ConfigError, match="is not a mapping, because it is larger than 1048576 bytes"):
        load_mapping(str(tmp_path / "large.toml"))


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "shop.toml")

    with pytest.raises(ConfigError, match="Not a regular file"):
        load_mapping(str(tmp_path / "shop.toml"))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "shoppify",
            "INGEST_MAPPING: unknown mapping 'shoppify': write one of amazon, ",
        ),
        ("missing.toml", "INGEST_MAPPING: cannot read missing.toml: No such file or directory"),
        ("/dev/zero", "INGEST_MAPPING: cannot read /dev/zero: Not a regular file"),
        ("/", "INGEST_MAPPING: cannot read /: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(name: str, error: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_mapping(name)

    assert str(refusal.value).startswith(error)


NESTED = """\
title = \'\'\'
[a]
b = 1\'\'\'  # [ {

[[lines]]
x."y.z" = [  # [ {
  1,

  [2, 3],
]
[[lines]]
cases = { first = [
  { when = [
    { path = "]" },
    { path = "b" } ], path = "c" },
  { concat = [
    "d",
    { path = "e" },
  ] },
] }
[lines.deep]
"""


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("title",), 1),
        (("lines",), 5),
        (("lines", 0, "x", "y.z"), 6),
        (("lines", 0, "x", "y.z", 1), 9),
        (("lines", 0, "x", "unknown", 1), 6),
        (("lines", 1), 11),
        (("lines", 1, "cases", "first", 0, "when", 1, "path"), 15),
        (("lines", 1, "cases", "first", 1), 16),
        (("lines", 1, "cases", "first", 1, "concat", 1), 18),
        (("lines", 1, "deep"), 21),
        (("unknown",), None),
    ],
)
def test_the_line_of_a_key_is_found(keys: Keys, line: int | None) -> None:
    assert line_of(keys, NESTED) == line


def test_the_reference_page_has_every_key() -> None:
    page = (DOCS / "reference" / "mapping.md").read_text(encoding="utf-8")

    for struct in (MappingFile, OrderFields, LineFields, Field, Condition, PartDeclaration):
        for name in struct.__struct_encode_fields__:
            assert f"`{name}`" in page or f"[{name}]" in page, name


def test_the_examples_of_the_reference_page_can_be_used() -> None:
    page = (DOCS / "reference" / "mapping.md").read_text(encoding="utf-8")
    whole, fields, total, *parts = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)

    compile_mapping("\n".join([whole, *parts]))
    compile_mapping(SOUND + fields)
    compile_mapping(SOUND.replace("[order]\n", total))
