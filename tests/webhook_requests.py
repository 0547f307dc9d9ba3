"""Requests as senders of webhooks make them, signed by plain formulas, and files of sources."""

import base64
import hashlib
import hmac
from pathlib import Path

from multidict import CIMultiDict

from ingest.api.webhooks.load import compile_webhooks
from ingest.api.webhooks.webhook import Webhook

# Published with the reference library of Standard Webhooks (Go), for a body with one space.
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
STANDARD_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
STANDARD_TIME = 1614265330
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

SECRET = "shpss_0123456789abcdef"
NOW = 1_700_000_000.0


def digest(secret: bytes, signed: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(secret, signed, getattr(hashlib, algorithm)).digest()


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def standard(body: bytes, secret: str = STANDARD_SECRET, at: float = NOW, webhook_id: str = "msg_1") -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{webhook_id}.{at:.0f}.".encode() + body
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": f"{at:.0f}",
        "webhook-signature": f"v1,{in_base64(digest(key, signed))}",
    }


def shopify(body: bytes, secret: str = SECRET, topic: str = "orders/create", webhook_id: str = "w-1") -> dict[str, str]:
    return {
        "X-Shopify-Topic": topic,
        "X-Shopify-Webhook-Id": webhook_id,
        "X-Shopify-Hmac-Sha256": in_base64(digest(secret.encode(), body)),
    }


def stripe(body: bytes, secret: str = SECRET, at: float = NOW) -> dict[str, str]:
    signature = digest(secret.encode(), f"{at:.0f}.".encode() + body).hex()
    return {"Stripe-Signature": f"t={at:.0f},v1={signature},v0=00"}


def woocommerce(body: bytes, secret: str = SECRET, topic: str = "order.updated") -> dict[str, str]:
    return {"X-WC-Webhook-Topic": topic, "X-WC-Webhook-Signature": in_base64(digest(secret.encode(), body))}


def bigcommerce(body: bytes, secret: str = SECRET, at: float = NOW, webhook_id: str = "msg_1") -> dict[str, str]:
    return standard(body, in_base64(secret.encode()), at, webhook_id)


def headers(given: dict[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(given)


def webhook(folder: Path, declared: str, secret: str = SECRET, name: str = "shop") -> Webhook:
    """A source with one secret and the further keys `declared`."""
    (folder / "secret").write_text(secret)
    (compiled,) = compile_webhooks(f'[sources.{name}]\nsecret_files = ["secret"]\n{declared}', folder)
    return compiled
