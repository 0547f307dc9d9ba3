"""An API's headers about its quota: each form is read, and nonsense is ignored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from ingest.upstream.rate_limit_headers import LONGEST, Remaining, permitted_rate, remaining_of

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    "headers",
    [
        {"RateLimit": '"default";r=50;t=30'},
        {"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
        {"RateLimit": "default;r=50;t=30;pk=:dHJpYWwxMjEzMjM=:"},
        {"RateLimit": '"a, b";r=50; t=30'},
        {"RateLimit": '"day";r=900;t=40, "minute";r=50;t=30'},
        {"RateLimit": '"default";r=50', "RateLimit-Policy": '"other";q=9;w=9, "default";q=100;w=30'},
        {"RateLimit": "limit=100, remaining=50, reset=30", "RateLimit-Policy": "100;w=60"},
        {"RateLimit-Limit": "100, 100;w=60", "RateLimit-Remaining": "50", "RateLimit-Reset": "30"},
        {"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "30"},
        {"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "1790000030"},
        {"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "1790000030000"},
        {"x-ratelimit-remaining": " 50 ", "x-ratelimit-reset": "30"},
        {"X-Rate-Limit-Requests-Left": "50", "X-Rate-Limit-Time-Reset-Ms": "30000"},
        {"RateLimit": '"default";r=50;t=30', "X-RateLimit-Remaining": "5000", "X-RateLimit-Reset": "30"},
    ],
)
def test_each_form_is_read(headers: dict[str, str]) -> None:
    assert remaining_of(CIMultiDict(headers), NOW) == Remaining(50, 30.0)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["RateLimit", "RateLimit-Policy"])
def test_a_header_of_many_spaces_does_not_keep_us_busy(name: str) -> None:
    headers = {"RateLimit": '"default";r=50;t=30', name: "a" + ";w=     " * 37 + ";!"}

    assert remaining_of(CIMultiDict(headers), NOW) == (None if name == "RateLimit" else Remaining(50, 30.0))


def test_of_several_quotas_an_exhausted_one_counts_and_for_the_longest_time() -> None:
    headers = CIMultiDict({"RateLimit": '"a";r=0;t=10, "b";r=0;t=600, "c";r=1;t=3600'})

    assert remaining_of(headers, NOW) == Remaining(0, 600.0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"RateLimit": ""},
        {"RateLimit": '"default";r=50'},
        {"RateLimit": '"default";r=-1;t=30'},
        {"RateLimit": '"default";r=5.5;t=30'},
        {"RateLimit": '"default";r=50;t=30, ;;;'},
        {"RateLimit": '"default";r=50;t=0'},
        {"RateLimit": "limit=100, remaining=many, reset=30"},
        {"RateLimit": "limit=100, remaining=50"},
        {"RateLimit-Remaining": "50"},
        {"RateLimit-Remaining": "50", "RateLimit-Reset": "soon"},
        {"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "1700000000"},
        {"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "9" * 400},
        {"X-RateLimit-Remaining": "\u0665", "X-RateLimit-Reset": "30"},
        {"RateLimit": '"' + "a" * 100_000 + '";r=1;t=1'},
        {"RateLimit": '",' * 140},
    ],
)
def test_what_does_not_follow_its_form_is_ignored(headers: dict[str, str]) -> None:
    assert remaining_of(CIMultiDict(headers), NOW) is None


@given(
    st.dictionaries(
        st.sampled_from(
            ["RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Reset"]
        ),
        st.text(st.sampled_from('";,=rtqw0159 \\:*-abc\u0660'), max_size=60),
    )
)
def test_whatever_is_sent_nothing_is_raised(headers: dict[str, str]) -> None:
    remaining = remaining_of(CIMultiDict(headers), NOW)

    assert remaining is None or (remaining.requests >= 0 and 0 < remaining.seconds <= LONGEST)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("0.5", 0.5),
        (" 0.0056 ", 0.0056),
        ("20", 20.0),
        ("0", None),
        ("", None),
        ("-1", None),
        ("many", None),
        ("1e9", None),
    ],
)
def test_the_permitted_rate_is_read_from_the_header_that_is_named(text: str, rate: float | None) -> None:
    headers = CIMultiDict({"x-amzn-RateLimit-Limit": text})

    assert permitted_rate(headers, "X-Amzn-RateLimit-Limit") == rate
