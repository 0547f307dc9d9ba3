"""Authentic requests, in published and generated examples, and attacks."""

import base64
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import webhook_requests as made
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from webhook_requests import NOW, SECRET, STANDARD_BODY, STANDARD_ID, STANDARD_SECRET, STANDARD_SIGNATURE, STANDARD_TIME

from ingest.api.webhooks.keys import HmacKey
from ingest.api.webhooks.reception import Refused, read_webhook
from ingest.api.webhooks.schemes import Claim, Kind
from ingest.api.webhooks.webhook import Webhook
from ingest.domain.webhook_result import WebhookResult

STANDARD = 'profile = "standard"\norder_id = "data.id"'
STRIPE = 'profile = "stripe"\norder_id = "data.object.id"\nevents = ["order.*"]'
EVENT = b'{"type":"order.created","data":{"id":"7"}}'


def result(source: Webhook, headers: dict[str, str], body: bytes, now: float = NOW) -> str:
    """`signed`, or why it is rejected."""
    try:
        read_webhook(source, made.headers(headers), body, now)
    except Refused as refused:
        return "signed" if refused.result is WebhookResult.MALFORMED else refused.result
    return "signed"


@pytest.fixture
def source(tmp_path: Path) -> Webhook:
    return made.webhook(tmp_path, STANDARD, STANDARD_SECRET)


@pytest.fixture
def published() -> dict[str, str]:
    return {"webhook-id": STANDARD_ID, "webhook-timestamp": str(STANDARD_TIME), "webhook-signature": STANDARD_SIGNATURE}


def test_the_published_example_of_standard_webhooks_is_valid(source: Webhook, published: dict[str, str]) -> None:
    assert result(source, published, STANDARD_BODY, STANDARD_TIME) == "signed"


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OA=", id="one bit"),
        pytest.param("v1,ELhqG0Ku1gwOc1f4jyKdp3SFGFLAOdJ9bvpWLciCakI=", id="a secret that was not decoded"),
        pytest.param(STANDARD_SIGNATURE.replace("v1,", "v2,"), id="unknown version"),
        pytest.param(STANDARD_SIGNATURE.replace("v1,", "v1a,"), id="version of another kind"),
        pytest.param(STANDARD_SIGNATURE.replace("v1,", ""), id="no version"),
        pytest.param(STANDARD_SIGNATURE[:-4], id="truncated"),
        pytest.param("v1,", id="empty"),
        pytest.param("", id="nothing"),
        pytest.param("v1,ö" + STANDARD_SIGNATURE[4:], id="not ASCII"),
        pytest.param("v1,\udcff", id="not UTF-8"),
        pytest.param(STANDARD_SIGNATURE + "=\x00", id="NUL"),
    ],
)
def test_another_signature_is_not(source: Webhook, published: dict[str, str], signature: str) -> None:
    found = result(source, published | {"webhook-signature": signature}, STANDARD_BODY, STANDARD_TIME)

    assert found == "bad_signature"


@pytest.mark.parametrize("separator", [" ", "  ", "\t"])
def test_one_of_several_signatures_has_to_fit(source: Webhook, published: dict[str, str], separator: str) -> None:
    listed = separator.join(["v9,AAAA", "v1,bm9uZQ==", "nonsense", "v1,%", STANDARD_SIGNATURE])

    assert result(source, published | {"webhook-signature": listed}, STANDARD_BODY, STANDARD_TIME) == "signed"


def test_only_the_first_ten_signatures_are_compared(source: Webhook, published: dict[str, str]) -> None:
    listed = " ".join(["v1,bm9uZQ=="] * 10 + [STANDARD_SIGNATURE])

    assert result(source, published | {"webhook-signature": listed}, STANDARD_BODY, STANDARD_TIME) == "bad_signature"


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_each_header_of_standard_webhooks_is_needed_once(
    source: Webhook, published: dict[str, str], missing: str
) -> None:
    twice = made.headers(published)
    twice.add(missing, published[missing])

    del published[missing]

    assert result(source, published, STANDARD_BODY, STANDARD_TIME) == "bad_signature"
    with pytest.raises(Refused, match="no signature"):
        read_webhook(source, twice, STANDARD_BODY, STANDARD_TIME)


def test_the_secret_may_lack_its_prefix(tmp_path: Path, published: dict[str, str]) -> None:
    source = made.webhook(tmp_path, STANDARD, STANDARD_SECRET.removeprefix("whsec_"))

    assert result(source, published, STANDARD_BODY, STANDARD_TIME) == "signed"


@pytest.mark.parametrize("body", [b'{"test":2432232314}', STANDARD_BODY + b"\n", b""])
def test_the_body_is_signed_as_it_was_sent(source: Webhook, published: dict[str, str], body: bytes) -> None:
    assert result(source, published, body, STANDARD_TIME) == "bad_signature"


@pytest.mark.parametrize(
    ("off", "expected"),
    [(-301, "expired"), (301, "expired"), (-1e9, "expired"), (1e9, "expired"), (-300, "signed"), (300, "signed")],
)
def test_a_signed_timestamp_may_differ_by_five_minutes(source: Webhook, off: float, expected: str) -> None:
    assert result(source, made.standard(EVENT, at=NOW + off), EVENT) == expected


def test_the_tolerance_can_be_set(tmp_path: Path) -> None:
    source = made.webhook(tmp_path, STANDARD + "\ntolerance = 10", STANDARD_SECRET)

    assert [result(source, made.standard(EVENT, at=NOW - age), EVENT) for age in (10, 11)] == ["signed", "expired"]


@pytest.mark.parametrize("text", ["1614265330.5", "-1614265330", " ", "", "1e9", "٣", "9" * 400, "NaN", "0x10"])
def test_what_is_no_timestamp_is_refused(source: Webhook, published: dict[str, str], text: str) -> None:
    assert result(source, published | {"webhook-timestamp": text}, STANDARD_BODY, STANDARD_TIME) == "bad_signature"


def test_a_part_of_the_body_cannot_pass_for_the_id_and_the_timestamp(source: Webhook) -> None:
    body = b'{"note":"x.1700000000.{}"}'
    genuine = made.standard(body, at=NOW - 10_000)
    shifted = genuine | {"webhook-id": f'msg_1.{NOW - 10_000:.0f}.{{"note":"x', "webhook-timestamp": "1700000000"}

    assert result(source, shifted, b'{}"}') == "bad_signature"


# -- ed25519 ----------------------------------------------------------------------------------------------------------


def ed25519_headers(private: Ed25519PrivateKey, body: bytes) -> dict[str, str]:
    signature = private.sign(f"msg_1.{NOW:.0f}.".encode() + body)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": f"{NOW:.0f}",
        "webhook-signature": f"v1a,{base64.b64encode(signature).decode()}",
    }


def public_secret(private: Ed25519PrivateKey) -> str:
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return f"whpk_{base64.b64encode(raw).decode()}"


def test_a_signature_by_ed25519_is_checked_with_the_public_key(tmp_path: Path) -> None:
    private, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    source = made.webhook(tmp_path, STANDARD, public_secret(private))

    assert result(source, ed25519_headers(private, EVENT), EVENT) == "signed"
    assert result(source, ed25519_headers(other, EVENT), EVENT) == "bad_signature"
    assert result(source, ed25519_headers(private, EVENT), EVENT + b" ") == "bad_signature"


def test_the_public_key_is_no_shared_secret(tmp_path: Path) -> None:
    # The public key must not be sufficient to sign.
    secret = public_secret(Ed25519PrivateKey.generate())
    source = made.webhook(tmp_path, STANDARD, secret)

    forged = made.standard(EVENT, secret="whsec_" + secret.removeprefix("whpk_"))

    assert result(source, forged, EVENT) == "bad_signature"


def test_both_kinds_of_keys_may_be_valid_at_a_time(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    source = made.webhook(tmp_path, STANDARD, f"{STANDARD_SECRET}\n{public_secret(private)}\n")

    assert result(source, ed25519_headers(private, EVENT), EVENT) == "signed"
    assert result(source, made.standard(EVENT), EVENT) == "signed"


# -- Shopify, WooCommerce, Stripe -------------------------------------------------------------------------------------

BODY = b'{"id":1,"total":"10.00"}'
BODY_SECRET = "a-shop-secret"
BODY_SIGNATURE = "zXpJfv1kLdKS/OntLeg275ZsidnbJf3PuMcoVg38Woo="


@pytest.mark.parametrize(
    ("profile", "topic", "signature"),
    [
        ("shopify", ("X-Shopify-Topic", "orders/create"), "X-Shopify-Hmac-Sha256"),
        ("shopify", ("Shopify-Topic", "orders/create"), "Shopify-Hmac-Sha256"),
        ("woocommerce", ("X-WC-Webhook-Topic", "order.updated"), "X-WC-Webhook-Signature"),
    ],
)
def test_examples_of_shops_that_sign_the_body(
    tmp_path: Path, profile: str, topic: tuple[str, str], signature: str
) -> None:
    source = made.webhook(tmp_path, f'profile = "{profile}"', BODY_SECRET)
    given = dict([topic, (signature, BODY_SIGNATURE)])

    assert result(source, given, BODY) == "signed"
    assert result(source, given, BODY.replace(b"10", b"11")) == "bad_signature"
    assert result(source, given | {signature: BODY_SIGNATURE[:-5] + "="}, BODY) == "bad_signature"
    assert result(source, dict([topic]), BODY) == "bad_signature"


STRIPE_BODY = b'{"id":"evt_1","object":"event"}'
STRIPE_V1 = "42b3d2b2181207b6b299df380bf37599bb895dc182467ba12e046b1916c4cd19"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"t=1614265330,v1={STRIPE_V1}", "signed"),
        (f"t=1614265330,v1=00,v1=zz,v1={STRIPE_V1},v0=abc", "signed"),
        (f"t=1614265330, v1={STRIPE_V1.upper()}", "signed"),
        (f"v1={STRIPE_V1},t=1614265330", "signed"),
        (f"t=1614265330,v0={STRIPE_V1}", "bad_signature"),
        (f"t=1614265331,v1={STRIPE_V1}", "bad_signature"),
        (f"t=1614265330,t=1614265330,v1={STRIPE_V1}", "bad_signature"),
        (f"v1={STRIPE_V1}", "bad_signature"),
        ("t=1614265330,v1=", "bad_signature"),
        (f"t=1614265330,v1={STRIPE_V1[:-2]}", "bad_signature"),
        ("t=1614265330", "bad_signature"),
        ("", "bad_signature"),
        ("t=1614265330,v1=\udc80", "bad_signature"),
    ],
)
def test_examples_of_stripe(tmp_path: Path, header: str, expected: str) -> None:
    source = made.webhook(tmp_path, STRIPE, "whsec_test_secret")

    assert result(source, {"Stripe-Signature": header}, STRIPE_BODY, 1614265330) == expected
    assert result(source, made.stripe(EVENT, "whsec_test_secret", at=NOW - 301), EVENT) == "expired"


# -- profile hmac -----------------------------------------------------------------------------------------------------


def hmac_source(folder: Path, signature: str, secret: str = SECRET) -> Webhook:
    table = f'profile = "hmac"\norder_id = "id"\n[sources.shop.signature]\nheader = "X-Signature"\n{signature}'
    return made.webhook(folder, table, secret)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "sha1"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_the_algorithm_the_encoding_and_the_prefix_can_be_chosen(tmp_path: Path, algorithm: str, encoding: str) -> None:
    source = hmac_source(tmp_path, f'algorithm = "{algorithm}"\nencoding = "{encoding}"\nprefix = "{algorithm}="')
    signature = made.digest(SECRET.encode(), BODY, algorithm)
    text = signature.hex() if encoding == "hex" else made.in_base64(signature)

    assert result(source, {"X-Signature": f"{algorithm}={text}"}, BODY) == "signed"
    assert result(source, {"X-Signature": text}, BODY) == "bad_signature"
    assert result(source, {"X-Signature": f"{algorithm}:{text}"}, BODY) == "bad_signature"
    assert result(source, {"X-Signature": f"{algorithm}={text[:-4]}"}, BODY) == "bad_signature"


def test_a_timestamp_and_an_id_can_be_signed(tmp_path: Path) -> None:
    source = hmac_source(
        tmp_path,
        'signed = "v0:{id}:{timestamp}:{body}!"\ntimestamp_header = "X-Time"\ntimestamp_unit = "ms"\nid_header = "X-Id"',
    )
    at = f"{NOW * 1000:.0f}"
    signature = made.digest(SECRET.encode(), f"v0:e-1:{at}:".encode() + BODY + b"!").hex()
    given = {"X-Signature": signature, "X-Time": at, "X-Id": "e-1"}

    assert result(source, given, BODY) == "signed"
    assert result(source, given, BODY, NOW + 301) == "expired"
    for name in ("X-Time", "X-Id"):
        assert result(source, given | {name: ""}, BODY) == "bad_signature"
        assert result(source, {key: value for key, value in given.items() if key != name}, BODY) == "bad_signature"


def test_a_signed_id_cannot_have_what_separates_it(tmp_path: Path) -> None:
    source = hmac_source(tmp_path, 'signed = "{id}|{body}"\nid_header = "X-Id"')
    signature = made.digest(SECRET.encode(), b"a|b|{}").hex()

    assert result(source, {"X-Signature": signature, "X-Id": "a|b"}, b"{}") == "bad_signature"


@pytest.mark.parametrize(("encoding", "secret"), [("hex", "00ff102030405060"), ("base64", "AP8QIDBAUGA=")])
def test_a_secret_can_be_encoded_bytes(tmp_path: Path, encoding: str, secret: str) -> None:
    source = hmac_source(tmp_path, f'key = "{encoding}"', secret)
    signature = made.digest(b"\x00\xff\x10\x20\x30\x40\x50\x60", BODY).hex()

    assert result(source, {"X-Signature": signature}, BODY) == "signed"


# -- any request ------------------------------------------------------------------------------------------------------

SOURCES = {
    "standard": (STANDARD, STANDARD_SECRET, made.standard),
    "stripe": (STRIPE, SECRET, made.stripe),
    "shopify": ('profile = "shopify"', SECRET, made.shopify),
    "woocommerce": ('profile = "woocommerce"', SECRET, made.woocommerce),
    "bigcommerce": ('profile = "bigcommerce"', SECRET, made.bigcommerce),
}


@pytest.mark.parametrize("profile", SOURCES)
@given(body=st.binary(max_size=200), data=st.data())
def test_a_signed_body_is_valid_and_with_one_byte_changed_it_is_not(
    tmp_path_factory: pytest.TempPathFactory, profile: str, body: bytes, data: st.DataObject
) -> None:
    declared, secret, headers = SOURCES[profile]
    source = made.webhook(tmp_path_factory.getbasetemp(), declared, secret)
    changed = bytearray(body + b"{")
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))

    assert result(source, headers(body), body) == "signed"
    assert result(source, headers(body + b"{"), bytes(changed)) == "bad_signature"


@pytest.mark.parametrize("profile", SOURCES)
@given(texts=st.lists(st.text(), min_size=4, max_size=4), body=st.binary(max_size=50))
def test_no_header_of_somebody_who_does_not_know_the_secret_is_accepted_or_fails_otherwise(
    tmp_path_factory: pytest.TempPathFactory, profile: str, texts: list[str], body: bytes
) -> None:
    declared, secret, headers = SOURCES[profile]
    source = made.webhook(tmp_path_factory.getbasetemp(), declared, secret)
    names = [*headers(b""), "X-Shopify-Topic"]

    assert result(source, dict(zip(names, texts, strict=False)), body) == "bad_signature"


class Watched(bytes):
    """A signature that must not be compared byte by byte, which takes longer the more of it is right."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError(other)


def test_signatures_are_compared_in_constant_time() -> None:
    key = HmacKey(SECRET.encode())
    signature = made.digest(SECRET.encode(), EVENT)

    assert key.fits(Claim(((Kind.HMAC, Watched(signature)),)), EVENT)
    assert not key.fits(Claim(((Kind.HMAC, Watched(signature[:-1] + b"x")),)), EVENT)


def test_a_signature_is_calculated_even_for_a_request_without_one(source: Webhook) -> None:
    calculated: list[bytes] = []

    class Key:
        def fits(self, claim: Claim, body: bytes) -> bool:
            calculated.append(body)
            return not claim.signatures

    watched = replace(source, secrets=cast("Any", SimpleNamespace(keys=[Key()])))

    assert result(watched, {}, EVENT) == WebhookResult.BAD_SIGNATURE
    assert calculated == [EVENT]
