"""Admission to the HTTP API, and the errors for rejected requests."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from ingest.api.admission.access import KeyAccess
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.api.http.problems import Problem
from ingest.domain.api_key import ApiKey, Denial, RateLimit, Scope, digest_of, make_key
from ingest.telemetry.shared_metrics import Counter

SHOP = make_key(b"shop" * 4)
LIMITED = make_key(b"limited " * 2)
OF_SHOP_DE = make_key(b"shop-de " * 2)
REVOKED = make_key(b"revoked " * 2)
UNKNOWN = make_key(b"unknown " * 2)
KEYS = [
    ApiKey("shop", digest_of(SHOP), frozenset({Scope.ENQUEUE, Scope.READ})),
    ApiKey("limited", digest_of(LIMITED), frozenset({Scope.ENQUEUE}), RateLimit(1.0, 2)),
    ApiKey("of-shop-de", digest_of(OF_SHOP_DE), frozenset({Scope.ENQUEUE}), sources=frozenset({"shop-de"})),
]


@dataclass
class Door:
    """KeyAccess with a clock and counters that a test can read."""

    now: float = 1e6
    cells: "memoryview[float]" = field(default_factory=lambda: memoryview(bytearray(8 * len(Denial))).cast("d"))

    def __post_init__(self) -> None:
        denied = {reason.value: Counter(self.cells, at) for at, reason in enumerate(Denial)}
        revoked = ApiKey("revoked", digest_of(REVOKED), frozenset(Scope))
        self.access = KeyAccess([*KEYS, revoked], SharedBuckets(), denied, lambda: self.now)
        self.access.use(KEYS)

    def denied(self) -> dict[str, int]:
        return {reason.value: int(self.cells[at]) for at, reason in enumerate(Denial) if self.cells[at]}

    def refusal(self, *headers: tuple[str, str], scope: Scope = Scope.ENQUEUE, source: str | None = None) -> Problem:
        with pytest.raises(Problem) as refused:
            self.access.admit(CIMultiDict(headers), scope, source)
        return refused.value


@pytest.fixture
def door() -> Door:
    return Door()


def bearer(key: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {key}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Authorization", f"Bearer {SHOP}"),
        ("authorization", f"bearer   {SHOP} "),
        ("X-API-Key", SHOP),
        ("x-api-key", f" {SHOP}\t"),
    ],
)
def test_a_key_is_admitted_in_either_header(door: Door, name: str, value: str) -> None:
    caller = door.access.admit(CIMultiDict({name: value}), Scope.READ, None)

    assert (caller.name, caller.scopes, caller.headers) == ("shop", {Scope.ENQUEUE, Scope.READ}, ())
    assert door.denied() == {}


def test_without_a_key_the_answer_tells_that_one_is_needed_and_no_error(door: Door) -> None:
    problem = door.refusal(("Host", "localhost"))

    assert (problem.status, problem.code) == (401, "unauthorized")
    assert problem.headers["WWW-Authenticate"] == 'Bearer realm="ingest"'
    assert door.denied() == {"no_key": 1}


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(SHOP), bearer(SHOP)],
        [bearer(SHOP), ("X-API-Key", SHOP)],
        [("X-API-Key", SHOP), ("X-Api-Key", SHOP)],
        [("Authorization", "Basic c2hvcDpzaG9w")],
        [("Authorization", "Basic c2hvcDpzaG9w"), ("X-API-Key", SHOP)],
        [("Authorization", SHOP)],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Bearer\t{SHOP}")],
        [("Authorization", "")],
        [("X-API-Key", "")],
        [("X-API-Key", "  ")],
        [bearer("a" * 257)],
        [bearer("a" * 8_000)],
        [bearer("ingest_\u00e9")],
        [bearer("ingest_\udcff")],
    ],
)
def test_headers_that_can_be_no_key_are_refused_without_repeating_them(
    door: Door, headers: list[tuple[str, str]]
) -> None:
    problem = door.refusal(*headers)

    assert problem.status == 401
    assert problem.headers["WWW-Authenticate"] == 'Bearer realm="ingest", error="invalid_request"'
    assert door.denied() == {"malformed": 1}
    assert not any(value in problem.detail for _, value in headers if len(value) > 3)


def test_a_mistyped_key_is_told_from_one_that_does_not_exist(door: Door) -> None:
    mistyped, unknown = door.refusal(bearer(SHOP[:-1] + "!")), door.refusal(bearer(UNKNOWN))

    assert mistyped.detail == "this is not an API key: a part is missing or mistyped"
    assert unknown.detail == "there is no such API key"
    assert mistyped.headers == unknown.headers == {"WWW-Authenticate": 'Bearer realm="ingest", error="invalid_token"'}
    assert door.denied() == {"malformed": 1, "unknown_key": 1}


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64))
def test_no_other_text_is_admitted(text: str) -> None:
    problem = Door().refusal(bearer(text))

    assert problem.status == 401
    # The same whatever the text is, so that it repeats nothing of it.
    assert problem.detail in {
        "this is not an API key: a part is missing or mistyped",
        "there is no such API key",
    }


def test_a_key_without_the_scope_is_told_which_one_it_lacks(door: Door) -> None:
    problem = door.refusal(bearer(SHOP), scope=Scope.ERASE)

    challenge = 'Bearer realm="ingest", error="insufficient_scope", scope="erase"'
    assert (problem.status, problem.code, problem.members) == (403, "missing_scope", {"scope": "erase"})
    assert problem.headers["WWW-Authenticate"] == challenge
    assert door.denied() == {"scope": 1}


def test_over_its_rate_a_key_is_told_when_to_try_again_and_is_then_admitted(door: Door) -> None:
    headers = CIMultiDict([bearer(LIMITED)])
    first, second = (door.access.admit(headers, Scope.ENQUEUE, None) for _ in range(2))
    problem = door.refusal(bearer(LIMITED))

    assert first.name == "limited"
    assert dict(first.headers) == {"RateLimit-Policy": '"default";q=2;w=2', "RateLimit": '"default";r=1;t=1'}
    assert dict(second.headers)["RateLimit"] == '"default";r=0;t=1'
    assert (problem.status, problem.code) == (429, "rate_limited")
    assert problem.headers == {
        "RateLimit-Policy": '"default";q=2;w=2',
        "RateLimit": '"default";r=0;t=1',
        "Retry-After": "1",
    }
    assert door.denied() == {"rate": 1}
    door.now += 1
    assert door.access.admit(headers, Scope.ENQUEUE, None).name == "limited"


def test_a_changed_file_changes_scopes_and_limits_and_does_not_fill_a_bucket_again(door: Door) -> None:
    for _ in range(2):
        door.access.admit(CIMultiDict([bearer(LIMITED)]), Scope.ENQUEUE, None)

    door.access.use([ApiKey("renamed", digest_of(LIMITED), frozenset({Scope.READ}), RateLimit(1.0, 2))])

    assert door.refusal(bearer(LIMITED)).status == 403
    assert door.refusal(bearer(LIMITED), scope=Scope.READ).status == 429
    door.now += 1
    assert door.access.admit(CIMultiDict([bearer(LIMITED)]), Scope.READ, None).name == "renamed"
    assert door.refusal(bearer(SHOP)).status == 401


def steps(run: Callable[[], object]) -> list[tuple[str, int]]:
    """The lines of ours that a call runs, in order."""
    seen: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "/ingest/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen.append((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return seen


def wrong_keys() -> Iterator[str]:
    """Keys with valid checksums that are not in force: unknown, revoked, and as similar to one in force as possible."""
    yield UNKNOWN
    yield REVOKED
    for at in (0, 8, 15):
        similar = bytearray(b"shop" * 4)
        similar[at] ^= 1
        yield make_key(bytes(similar))


def test_wrong_unknown_and_revoked_keys_take_the_same_steps_and_get_the_same_answer(door: Door) -> None:
    problems = [door.refusal(bearer(key)) for key in wrong_keys()]
    ways = [steps(lambda key=key: door.refusal(bearer(key))) for key in wrong_keys()]

    answers = [(problem.status, problem.code, problem.detail, problem.headers) for problem in problems]
    assert all(answer == answers[0] for answer in answers)
    assert len(ways[0]) > 10
    assert all(way == ways[0] for way in ways)


def test_a_key_that_is_limited_to_sources_is_admitted_to_those_and_to_no_other_nor_to_the_unnamed_one(
    door: Door,
) -> None:
    headers = CIMultiDict([bearer(OF_SHOP_DE)])

    caller = door.access.admit(headers, Scope.ENQUEUE, "shop-de")
    refused = [door.refusal(bearer(OF_SHOP_DE), source=source) for source in ("shop-fr", "unknown", "")]

    assert (caller.may_use("shop-de"), caller.may_use("shop-fr")) == (True, False)
    assert [(each.status, each.code, each.key) for each in refused] == [(403, "missing_source", "of-shop-de")] * 3
    assert door.denied() == {"source": 3}


def test_a_key_that_loses_its_source_during_a_long_request_is_rejected(door: Door) -> None:
    caller = door.access.admit(CIMultiDict([bearer(OF_SHOP_DE)]), Scope.ENQUEUE, "shop-de")
    door.access.use([ApiKey("of-shop-de", digest_of(OF_SHOP_DE), frozenset(Scope), sources=frozenset({"shop-fr"}))])

    with pytest.raises(Problem) as refused:
        caller.check(Scope.ENQUEUE)

    assert refused.value.code == "missing_source"
