"""INGEST_UPSTREAM_CA_FILE: all of its certificates are trusted, or none."""

from pathlib import Path

import pytest
import trustme

from ingest.upstream.http.tls_context import TlsMaterial, UnusableFile, context_of, shared_context_of

FIRST, SECOND = (trustme.CA().cert_pem.bytes() for _ in range(2))


COMMENTS = {"none": b"", "not ASCII": "# Behörde für Zertifikate\n".encode(), "byte order mark": b"\xef\xbb\xbf"}
REFUSED = {
    "empty": b"",
    "something else": b"hello",
    "cut off": FIRST[:100],
    "cut off in the second": FIRST + SECOND[: len(SECOND) // 2],
    "cut off at the end": FIRST + SECOND[:-5],
}


@pytest.mark.parametrize("before", COMMENTS.values(), ids=COMMENTS)
def test_certificates_may_have_comments_of_any_characters(before: bytes) -> None:
    context = context_of(TlsMaterial(before + FIRST + before + SECOND))

    assert context.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_cut_off_or_has_none_is_refused_as_a_whole(content: bytes) -> None:
    with pytest.raises(
        UnusableFile, match="INGEST_UPSTREAM_CA_FILE: contains no certificates in PEM format, or one is cut"
    ):
        context_of(TlsMaterial(content))


def test_transports_with_the_same_authorities_share_a_context_while_one_of_them_uses_it() -> None:
    material = TlsMaterial(FIRST)

    first, second = shared_context_of(material), shared_context_of(TlsMaterial(FIRST))

    assert first is second
    assert first is not shared_context_of(TlsMaterial(SECOND))
    assert shared_context_of(None) is not first


def test_a_context_of_the_system_is_not_shared_after_the_system_trusts_other_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shared_context_of(None)
    (tmp_path / "authority.pem").write_bytes(FIRST)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))

    after = shared_context_of(None)

    assert after is not before
    assert after.cert_store_stats()["x509"] == 1
