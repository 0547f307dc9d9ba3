"""The keys and types of the file of webhooks, and the error of a webhook that cannot be used.

docs/reference/webhooks.md describes them for users.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec

from ingest.domain.toml_errors import Keys

Profile = Literal["standard", "shopify", "stripe", "woocommerce", "bigcommerce", "hmac"]


class WebhookError(ValueError):
    """A webhook that cannot be used.

    Attributes:
        keys: where in the file, from its top.
        problem: the error, never a secret.
    """

    def __init__(self, problem: str, keys: Keys = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys = keys


@contextmanager
def below(*keys: str | int) -> Iterator[None]:
    """Add these keys of the file to an error in the block."""
    try:
        yield
    except WebhookError as error:
        raise WebhookError(error.problem, (*keys, *error.keys)) from None


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rejects unknown keys, because a typing mistake must not be ignored."""


class InHeader(Strict, frozen=True, kw_only=True):
    """The value of a header."""

    header: str


Place = str | InHeader
"""Where a value is: a path into the JSON body, or a header."""

Patterns = Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class Signature(Strict, frozen=True, kw_only=True):
    """`[sources.NAME.signature]`: how the sender signs, for the profile `hmac`.

    Attributes:
        header: contains the signature.
        algorithm: the hash function of the HMAC.
        encoding: of the signature.
        prefix: the text in the header before the signature.
        signed: the signed text with {body}, and {timestamp} and {id} if they are signed.
        timestamp_header: has {timestamp}, in Unix time.
        timestamp_unit: its unit: seconds or milliseconds.
        id_header: has {id}.
        key: how a secret is written: as text, or encoded bytes.
    """

    header: str
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    signed: str = "{body}"
    timestamp_header: str | None = None
    timestamp_unit: Literal["s", "ms"] = "s"
    id_header: str | None = None
    key: Literal["text", "base64", "hex"] = "text"


class Challenge(Strict, frozen=True, kw_only=True):
    """`[sources.NAME.challenge]`: how the sender verifies the URL by GET.

    Attributes:
        parameter: of the query, contains the challenge.
        token_parameter: of the query, contains the token.
        token_file: the file of the token that was entered at the sender.
        endpoint: the URL as entered at the sender. The response then is a digest, as eBay requires.
    """

    parameter: str
    token_parameter: str | None = None
    token_file: str | None = None
    endpoint: str | None = None


class WebhookDeclaration(Strict, frozen=True, kw_only=True):
    """`[sources.NAME]`: one sender. The profile provides a value that is None.

    Attributes:
        profile: what kind of sender.
        secret_files: paths of files with secrets, one in each line.
        tolerance: seconds by which a timestamp may differ from now.
        event: the place of the event's name.
        events: patterns of events that are orders.
        ignore: patterns of events that are no orders, although one of `events` matches.
        order_id: the place of the order's ID.
        order_ids: the path of the IDs of several orders, with `[]` after the list.
        remove_prefix: the text before the ID.
        document: where in the body the order itself is.
        delivery_id: where the ID is that the sender gives to each event.
        event_time: the place of the sender's own time of the event.
        challenge: how the sender verifies the URL.
        express: whether workers are to read the orders before those that wait.
        coalesce: instead of INGEST_COALESCE.
        signature: for the profile `hmac`.
    """

    profile: Profile
    secret_files: Patterns
    tolerance: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None
    event: Place | None = None
    events: Patterns | None = None
    ignore: list[str] | None = None
    order_id: Place | None = None
    order_ids: str | None = None
    remove_prefix: str = ""
    document: str | None = None
    delivery_id: Place | None = None
    event_time: Place | None = None
    challenge: str | Challenge | None = None
    express: bool = False
    coalesce: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    signature: Signature | None = None


class WebhooksFile(Strict, frozen=True, kw_only=True):
    """The whole file."""

    sources: dict[str, WebhookDeclaration]
