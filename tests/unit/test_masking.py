"""A URL, or a text with URLs, never shows secrets."""

import pytest

from ingest.domain.masking import mask_url, mask_urls


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://host", "redis://host"),
        ("redis://user@host", "redis://user@host"),
        ("redis://:p@host", "redis://:***@host"),
        ("redis://u:p%40s%2Fs@host/0", "redis://u:***@host/0"),
        ("redis://u:p@s@host/0", "redis://u:***@host/0"),
        ("redis://u:a:b@host/0", "redis://u:***@host/0"),
        ("postgresql://u:pässwörd@host/db", "postgresql://u:***@host/db"),
        ("postgresql://host/db?user=u&password=p", "postgresql://host/db?user=u&password=***"),
        ("postgresql://host/db?sslmode=require&sslpassword=p", "postgresql://host/db?sslmode=require&sslpassword=***"),
        ("rediss://host/0?ssl_cert_reqs=none&pass%77ord=p", "rediss://host/0?ssl_cert_reqs=none&pass%77ord=***"),
        (
            "postgresql://u:p@h1:5432,h2/db?target_session_attrs=any",
            "postgresql://u:***@h1:5432,h2/db?target_session_attrs=any",
        ),
        ("https://shop.example/orders/{order_id}", "https://shop.example/orders/{order_id}"),
        ("https://token@shop.example/{order_id}", "https://***@shop.example/{order_id}"),
        ("https://u:1/x@shop.example/{order_id}", "https://***@shop.example/{order_id}"),
        ("https://shop.example/o?id={order_id}&key=k&x", "https://shop.example/o?id={order_id}&key=***&***"),
        ("https://shop.example/o?id=pre-{order_id}-post", "https://shop.example/o?id=***{order_id}***"),
        ("https://shop.example/o?ids={order_ids}&key=k", "https://shop.example/o?ids={order_ids}&key=***"),
        ("https://shop.example/o?{order_id}", "https://shop.example/o?{order_id}"),
        ("https://shop.example/o?a=b;key=k&id={order_id}", "https://shop.example/o?a=***&id={order_id}"),
        ("https://shop.example/{order_id}#secret", "https://shop.example/{order_id}#***"),
        ("postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("curl 7: Failed to connect to 127.0.0.1:1", "curl 7: Failed to connect to 127.0.0.1:1"),
        ("Unsupported proxy 'https://u:p@h:1', sorry", "Unsupported proxy 'https://***@h:1', sorry"),
        ("--redis-url=redis://u:p@h/0", "--redis-url=redis://u:***@h/0"),
        ("at http://h/?k=v and http://u@h", "at http://h/?k=*** and http://***@h"),
        ("bad http://u:p@[::1 here", "bad *** here"),
    ],
)
def test_each_url_in_a_text_is_masked(text: str, shown: str) -> None:
    assert mask_urls(text) == shown
