"""The meaning of a response of the external API, which is the table of faults, and Retry-After."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.status_overrides import parse_status_overrides
from ingest.upstream.responses import LONGEST_WAIT, code_of, fault_of, is_truncated, retry_after

NOW = datetime(2026, 1, 31, 23, 59, 30, tzinfo=UTC)


@pytest.mark.parametrize("status", [404, 410])
def test_a_missing_order_is_a_permanent_fault(status: int) -> None:
    fault = fault_of(status, {}, NOW)

    assert isinstance(fault, PermanentFault)
    assert fault.reason is DeadReason.NOT_FOUND


@pytest.mark.parametrize("status", [400, 402, 405, 406, 409, 413, 418, 422, 451, 499])
def test_a_refused_request_is_a_permanent_fault(status: int) -> None:
    fault = fault_of(status, {}, NOW)

    assert isinstance(fault, PermanentFault)
    assert fault.reason is DeadReason.REJECTED
    assert str(status) in str(fault)


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_refused_credential_is_not_a_fault_of_the_order(status: int) -> None:
    fault = fault_of(status, {}, NOW)

    assert isinstance(fault, CredentialFault)


def test_a_refused_client_certificate_is_not_a_fault_of_the_order() -> None:
    nginx = {"Server": "nginx/1.22.1", "Content-Type": "text/html", "Content-Length": "215", "Connection": "close"}

    refused = fault_of(400, nginx, NOW, with_certificate=True)

    assert isinstance(refused, CredentialFault)
    assert "client certificate" in str(refused)
    assert isinstance(fault_of(400, nginx, NOW), PermanentFault), "we have none"
    assert isinstance(
        fault_of(400, nginx, NOW, parse_status_overrides("400=rejected"), with_certificate=True), PermanentFault
    )
    for of_the_order in ({"Content-Type": "application/json", "Connection": "close"}, {"Content-Type": "text/html"}):
        assert isinstance(fault_of(400, of_the_order, NOW, with_certificate=True), PermanentFault)


@pytest.mark.parametrize("status", [300, 302, 304, 307])
def test_a_redirect_without_a_target_is_transient(status: int) -> None:
    assert isinstance(fault_of(status, {}, NOW), TransientFault)


@pytest.mark.parametrize("status", [408, 421, 425, 500, 502, 503, 504, 507, 520, 599])
def test_a_server_error_is_transient(status: int) -> None:
    assert isinstance(fault_of(status, {}, NOW), TransientFault)


@pytest.mark.parametrize("status", [429, 503])
def test_a_response_with_retry_after_is_a_throttled_fault(status: int) -> None:
    fault = fault_of(status, {"Retry-After": "7"}, NOW)

    assert isinstance(fault, ThrottledFault)
    assert fault.after == 7.0


@pytest.mark.parametrize("status", [204, 205])
def test_a_response_without_content_is_an_invalid_order(status: int) -> None:
    fault = fault_of(status, {}, NOW)

    assert isinstance(fault, PermanentFault)
    assert (fault.reason, str(fault)) == (DeadReason.INVALID_ORDER, f"HTTP {status} without a document")


def test_a_429_without_retry_after_is_a_throttled_fault() -> None:
    fault = fault_of(429, {}, NOW)

    assert isinstance(fault, ThrottledFault)
    assert fault.after is None


@pytest.mark.parametrize("status", [500, 502, 504])
def test_retry_after_on_another_status_counts_as_a_failed_try(status: int) -> None:
    assert isinstance(fault_of(status, {"Retry-After": "7"}, NOW), TransientFault)


def test_a_503_with_an_invalid_retry_after_is_a_failed_try() -> None:
    assert isinstance(fault_of(503, {"Retry-After": "soon"}, NOW), TransientFault)


@given(st.integers(100, 599))
def test_every_status_has_a_label(status: int) -> None:
    expected = {2: "2xx", 3: "3xx", 5: "5xx"}.get(status // 100, "4xx")

    assert code_of(status) == ("429" if status == 429 else expected)


@given(st.integers(100, 999).filter(lambda status: not 200 <= status < 300))
def test_every_status_but_a_success_is_a_fault(status: int) -> None:
    assert isinstance(fault_of(status, {}, NOW), Fault)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0),
        ("5", 5),
        (" 120 ", 120),
        ("0000000005", 5),
        ("0" * 400 + "5", 5),
        ("86401", LONGEST_WAIT),
        ("9" * 400, LONGEST_WAIT),
        ("-5", None),
        ("1.5", 1.5),
        ("2.0", 2.0),
        ("0.0", 0),
        ("0.25", 0.25),
        ("86400.5", LONGEST_WAIT),
        ("1." + "0" * 400 + "1", 1.0),
        ("9" * 400 + ".5", LONGEST_WAIT),
        ("1.", None),
        (".5", None),
        ("1.5.5", None),
        ("1,5", None),
        ("1e3", None),
        ("²", None),
        ("٣", None),
        ("", None),
        ("soon", None),
    ],
)
def test_seconds_are_read_up_to_a_day(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Sun, 01 Feb 2026 00:00:00 GMT", 30),
        ("Sun, 01 Feb 2026 01:00:00 +0100", 30),
        ("Sunday, 01-Feb-26 00:00:00 GMT", 30),
        ("Sun Feb  1 00:00:00 2026", 30),
        ("Sat, 31 Jan 2026 23:59:30 GMT", 0),
        ("Sat, 31 Jan 2026 23:59:29 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_WAIT),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 31 Dec 99999999999 23:59:59 GMT", None),
        ("Sun, 01 Feb 2026 00:00:00 +99999999999", None),
        ("Sun, 99 Feb 2026 00:00:00 GMT", None),
    ],
)
def test_dates_are_read_in_all_three_forms_of_http(value: str, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


@given(st.integers(0, 86_400))
def test_a_date_means_the_time_until_then(seconds: int) -> None:
    value = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)

    assert retry_after(value, NOW) == seconds


_scraps = st.sampled_from(
    [
        "Mon,",
        "Jan",
        "Feb",
        "01",
        "31",
        "2024",
        "99999999999",
        "00:00:00",
        "25:61:99",
        "GMT",
        "EST",
        "+",
        "-",
        "+9999",
        ":",
        ",",
        ".",
        "(",
        "am",
        "1994",
    ]
)


@settings(max_examples=300)
@given(st.text() | st.lists(_scraps, max_size=9).map(" ".join) | st.lists(_scraps, max_size=9).map("".join))
def test_an_invalid_retry_after_never_raises(value: str) -> None:
    seconds = retry_after(value, NOW)

    assert seconds is None or 0 <= seconds <= LONGEST_WAIT


@pytest.mark.parametrize(
    ("body", "is_cut"),
    [
        (b"", True),
        (b" \r\n", True),
        (b"{", True),
        (b'{"id": "a', True),
        (b' {"lines": [{"a": 1},\n', True),
        (b'[{"id": "a"}, {"id": "b"}', True),
        (b"[", True),
        (b"{}", False),
        (b'{"id": "a"}\r\n', False),
        (b"<html>", False),
        (b"[1, 2]", False),
        (b"x", False),
    ],
)
def test_a_truncated_body_is_distinguished_from_other_content(body: bytes, *, is_cut: bool) -> None:
    assert is_truncated(body) == is_cut
