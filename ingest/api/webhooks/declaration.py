"""The keys and types of the file of webhooks, and the error of a webhook that cannot be used.

docs/reference/webhooks.md describes them for users.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec

from ingest.domain.toml_errors import TableProblem

Profile = Literal["standard", "shopify", "stripe", "woocommerce", "bigcommerce", "hmac"]


class WebhookError(TableProblem):
    """A webhook that cannot be used."""


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
"""The place of a value, a path into the JSON body or a header."""

Patterns = Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1)]


class Signature(Strict, frozen=True, kw_only=True):
    """`[sources.NAME.signature]`: the signature of the sender, for the profile `hmac`.

    Attributes:
        header: Contains the signature.
        algorithm: The hash function of the HMAC.
        encoding: The encoding of the signature.
        prefix: The text in the header before the signature.
        signed: The signed text with {body}, and {timestamp} and {id} if they are signed.
        timestamp_header: Has {timestamp}, in Unix time.
        timestamp_unit: Its unit, seconds or milliseconds.
        id_header: Has {id}.
        key: The form of a secret, text or encoded bytes.
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
        parameter: The query parameter that contains the challenge.
        token_parameter: The query parameter that contains the token.
        token_file: The file of the token that was entered at the sender.
        endpoint: The URL as entered at the sender. The response then is a digest, as eBay requires.
    """

    parameter: str
    token_parameter: str | None = None
    token_file: str | None = None
    endpoint: str | None = None


class WebhookDeclaration(Strict, frozen=True, kw_only=True):
    """`[sources.NAME]`: one sender. The profile provides a value that is None.

    Attributes:
        profile: What kind of sender.
        secret_files: Paths of files with secrets, one in each line.
        tolerance: Seconds by which a timestamp may differ from now.
        event: The place of the event's name.
        events: Patterns of events that are orders.
        ignore: Patterns of events that are no orders, although one of `events` matches.
        order_id: The place of the order's ID.
        order_ids: The path of the IDs of several orders, with `[]` after the list.
        remove_prefix: The text before the ID.
        document: Where in the body the order itself is.
        delivery_id: Where the ID is that the sender gives to each event.
        event_time: The place of the sender's own time of the event.
        challenge: How the sender verifies the URL.
        express: Whether workers are to read the orders before those that wait.
        coalesce: Instead of INGEST_COALESCE.
        signature: The signature of the profile `hmac`.
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
