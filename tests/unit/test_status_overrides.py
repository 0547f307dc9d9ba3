"""What statuses mean for one API: the rules, and the faults that follow from them."""

from datetime import UTC, datetime

import pytest

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, PermanentFault, PostponedFault, ThrottledFault, TransientFault
from ingest.domain.fetch.status_overrides import StatusAction, StatusOverride, parse_status_overrides
from ingest.upstream.responses import fault_of

NOW = datetime(2026, 1, 31, 23, 59, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("", {}),
        (" , \n", {}),
        ("404=retry:1h", {404: StatusOverride(StatusAction.RETRY, 3600)}),
        ("404 = retry:90, 409=retry:1.5s\n423=throttled:15m,429=throttled", {
            404: StatusOverride(StatusAction.RETRY, 90),
            409: StatusOverride(StatusAction.RETRY, 1.5),
            423: StatusOverride(StatusAction.THROTTLED, 900),
            429: StatusOverride(StatusAction.THROTTLED),
        }),
        ("451=not_found,500=rejected,402=credential,499=retry:30d", {
            451: StatusOverride(StatusAction.NOT_FOUND),
            500: StatusOverride(StatusAction.REJECTED),
            402: StatusOverride(StatusAction.CREDENTIAL),
            499: StatusOverride(StatusAction.RETRY, 30 * 86_400),
        }),
    ],
)  # fmt: skip
def test_rules_are_separated_by_commas_or_line_ends(text: str, overrides: dict[int, StatusOverride]) -> None:
    assert parse_status_overrides(text) == overrides


@pytest.mark.parametrize(
    "text",
    [
        "404",
        "404=",
        "=retry",
        "404=Retry",
        "404=retry:",
        "404=retry:1w",
        "404=retry:-1",
        "404=retry:0",
        "404=retry:1e9",
        "404=retry:31d",
        "404=retry:9999999999",
        "404=not_found:1s",
        "404=credential:1",
        "200=retry",
        "302=retry",
        "600=retry",
        "4xx=retry",
        "404=retry 409=retry",
        "404=retry,404=rejected",
        "٤٠٤=retry",
    ],
)
def test_anything_else_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        parse_status_overrides(text)

    assert "\n" not in str(error.value)


def test_a_rule_takes_the_place_of_the_usual_meaning() -> None:
    overrides = parse_status_overrides("404=retry, 409=retry:1h, 500=rejected, 400=not_found, 402=credential")

    faults = {status: fault_of(status, {}, NOW, overrides) for status in (404, 409, 500, 400, 402, 410)}

    assert {status: type(fault) for status, fault in faults.items()} == {
        404: TransientFault,
        409: PostponedFault,
        500: PermanentFault,
        400: PermanentFault,
        402: CredentialFault,
        410: PermanentFault,
    }
    assert [getattr(faults[status], "reason", None) for status in (500, 400, 410)] == [
        DeadReason.REJECTED,
        DeadReason.NOT_FOUND,
        DeadReason.NOT_FOUND,
    ]
    assert getattr(faults[409], "after", None) == 3600


@pytest.mark.parametrize(("headers", "after"), [({}, 30), ({"Retry-After": "7"}, 7), ({"Retry-After": "soon"}, 30)])
def test_a_throttled_request_waits_as_the_api_says_or_else_as_the_rule_says(
    headers: dict[str, str], after: float
) -> None:
    fault = fault_of(423, headers, NOW, parse_status_overrides("423=throttled:30s"))

    assert isinstance(fault, ThrottledFault)
    assert fault.after == after
