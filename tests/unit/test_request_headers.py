"""Headers of requests, and what may go into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.fetch.request_headers import check_secret, check_token, parse_headers

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("X-Key: a:b ", {"X-Key": "a:b"}),
        ("X-Key: 1\n\n  Accept:text/x\r\n", {"X-Key": "1", "Accept": "text/x"}),
        ('{"X-Key": "1", "Accept": " text/x "}', {"X-Key": "1", "Accept": "text/x"}),
        (" {} ", {}),
    ],
)
def test_headers_are_lines_or_a_json_object(text: str, headers: dict[str, str]) -> None:
    assert parse_headers(text) == headers


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"X Key: {SECRET}",
        f": {SECRET}",
        f"X-Ä: {SECRET}",
        f"X-Key: {SECRET}\x00",
        f"X-Key: {SECRET}ä",
        "X-Key:",
        f"X-Key: {SECRET}{'x' * 10_000}",
        f"X-Key: 1\nx-key: {SECRET}",
        f"Content-Length: {SECRET}",
        f"transfer-encoding: {SECRET}",
        f'{{"X-Key": "{SECRET}"',
        f'{{"X-Key": ["{SECRET}"]}}',
        f'{{"X-Key": "{SECRET}", "X-Key": "{SECRET}"}}',
        f'{{"X-Key": "{SECRET}\\nHost: evil"}}',
        "{" * 100_000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_what_cannot_be_sent_is_an_error_that_shows_no_value(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        parse_headers(text)

    assert SECRET not in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text())
def test_whatever_is_accepted_is_safe_in_a_header(text: str) -> None:
    try:
        headers = parse_headers(text)
    except ValueError:
        return

    assert all(value.isprintable() and value.isascii() and value for value in headers.values())
    assert all(name.isascii() and not set(name) & set(": \r\n") for name in headers)


@given(st.text())
def test_a_token_has_no_spaces_and_a_secret_no_control_characters(text: str) -> None:
    for check, is_right in ((check_token, lambda value: " " not in value), (check_secret, str.isprintable)):
        try:
            value = check(text)
        except ValueError:
            continue
        assert value == value.strip() != ""
        assert is_right(value)
