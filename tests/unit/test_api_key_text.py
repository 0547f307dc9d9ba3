"""The text of API keys: scanners find them, and typing errors are distinguished from wrong keys."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.domain.api_key import PATTERN, RANDOM_BYTES, ApiKey, Scope, digest_of, has_valid_checksum, make_key

KEY = make_key(bytes(range(16)))


@given(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_every_key_has_the_documented_form_and_a_valid_checksum(random: bytes) -> None:
    key = make_key(random)

    assert re.fullmatch(PATTERN, key)
    assert has_valid_checksum(key)


def test_the_text_of_a_key_stays_the_same_in_later_releases() -> None:
    assert make_key(bytes(16)) == "ingest_00000000000000000000002h4iFV"
    assert make_key(b"\xff" * 16) == "ingest_7n42DGM5Tflk9n8mt7Fhc71S48TA"


def test_all_random_bits_are_in_the_key() -> None:
    keys = {make_key((1 << bit).to_bytes(RANDOM_BYTES)) for bit in range(128)}

    assert len(keys) == 128


@pytest.mark.parametrize("count", [0, 15, 17])
def test_a_key_is_not_made_of_fewer_or_more_random_bits(count: int) -> None:
    with pytest.raises(ValueError, match="16 random bytes"):
        make_key(bytes(count))


@pytest.mark.parametrize(
    "wrong",
    [
        KEY[:-1],
        KEY + "a",
        KEY + "\n",
        KEY.upper(),
        KEY.replace("ingest_", "ingest-"),
        KEY.replace("ingest_", ""),
        "",
        "ingest_" + "\u0661" * 28,
    ],
)
def test_what_is_no_key_has_no_valid_checksum(wrong: str) -> None:
    assert not has_valid_checksum(wrong)


def test_every_single_typing_error_is_noticed() -> None:
    for at in range(len("ingest_"), len(KEY)):
        assert not has_valid_checksum(KEY[:at] + ("a" if KEY[at] != "a" else "b") + KEY[at + 1 :])


def test_two_exchanged_characters_are_noticed() -> None:
    for at in range(len("ingest_"), len(KEY) - 1):
        if KEY[at] != KEY[at + 1]:
            assert not has_valid_checksum(KEY[:at] + KEY[at + 1] + KEY[at] + KEY[at + 2 :])


def test_what_is_kept_of_a_key_is_its_sha_256_and_the_id_is_its_beginning() -> None:
    kept = ApiKey("shop", digest_of(KEY), frozenset({Scope.READ}))

    assert kept.digest == hashlib.sha256(KEY.encode()).digest()
    assert kept.key_id == hashlib.sha256(KEY.encode()).hexdigest()[:12]
