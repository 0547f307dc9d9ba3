"""A compiled webhook contains everything that is needed to check and read its requests."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ingest.api.webhooks import declaration
from ingest.api.webhooks.challenge import Challenge, compile_challenge
from ingest.api.webhooks.declaration import WebhookError, below
from ingest.api.webhooks.keys import ParseKey, hmac_key
from ingest.api.webhooks.places import (
    EachPlace,
    HeaderPlace,
    PathPlace,
    Place,
    compile_each,
    compile_path,
    compile_place,
    header_name,
)
from ingest.api.webhooks.profiles import PROFILES, Profile
from ingest.api.webhooks.schemes import HeaderScheme, decode_base64, decode_hex
from ingest.api.webhooks.secret_files import SecretFiles

_TOLERANCE = 300.0
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Webhook:
    """A sender of webhooks.

    Attributes:
        name: The name in its URL, in metrics and in the queue.
        declared: The content of the file.
        profile: The kind of sender, with the values of the file.
        secrets: The secrets, of which one has signed each request.
        order_id: The place of the order's ID, or of the IDs of several orders.
        challenge: How the sender verifies the URL. None if it does not.
        document: Where the order itself is, or None if workers fetch it.
    """

    name: str
    declared: declaration.WebhookDeclaration
    profile: Profile
    secrets: SecretFiles
    order_id: Place | EachPlace
    challenge: Challenge | None
    document: PathPlace | None

    @property
    def tolerance(self) -> float:
        """Seconds by which a signed timestamp may differ from now."""
        return self.declared.tolerance or _TOLERANCE

    @property
    def path(self) -> str:
        """The path of its URL."""
        return f"/v1/webhooks/{self.name}"

    def is_order(self, event: str) -> bool:
        """Whether an event is one of an order."""
        return _matches(self.profile.events or (), event) and not _matches(self.profile.ignore, event)


OpenSecrets = Callable[[Sequence[Path], ParseKey], SecretFiles]


def compile_webhook(
    name: str, declared: declaration.WebhookDeclaration, folder: Path, open_secrets: OpenSecrets = SecretFiles
) -> Webhook:
    """Compile a webhook.

    Args:
        name: The name of the webhook.
        declared: The content of the file.
        folder: The folder of the file. Paths of secrets are relative to it.
        open_secrets: Opens the files of secrets. The default reads them.

    Raises:
        WebhookError: It cannot be used.
    """
    profile = _profile_of(declared)
    if declared.tolerance is not None and not profile.has_timestamp:
        raise WebhookError("there is no signed timestamp that this could be for", ("tolerance",))
    if profile.event is not None and profile.events is None:
        raise WebhookError("needs the key `events`: the events that are orders, such as checkout.session.completed")
    for key in ("events", "ignore"):
        if profile.event is None and getattr(declared, key) is not None:
            raise WebhookError(f"`{key}` needs `event`: where the name of the event is", (key,))
    order_id = _order_id(declared, profile)
    _check_readable(declared, profile)
    paths = [folder / path for path in declared.secret_files]
    try:
        secrets = open_secrets(paths, profile.parse_key)
    except ValueError as error:
        raise WebhookError(str(error), ("secret_files",)) from None
    with below("document"):
        document = compile_path(declared.document) if declared.document is not None else None
    with below("challenge"):
        challenge = compile_challenge(declared.challenge, folder) if declared.challenge is not None else None
    return Webhook(name, declared, profile, secrets, order_id, challenge, document)


def _order_id(declared: declaration.WebhookDeclaration, profile: Profile) -> Place | EachPlace:
    """The place of the ID, or of the IDs."""
    if declared.order_ids is not None:
        for key in ("order_id", "document"):
            if getattr(declared, key) is not None:
                raise WebhookError(f"`{key}` is for webhooks with one order: remove it, or `order_ids`", (key,))
        with below("order_ids"):
            return compile_each(declared.order_ids)
    place = profile.order_id
    if place is None:
        raise WebhookError("needs the key `order_id`: where the ID of the order is, such as data.order.id")
    if isinstance(place, HeaderPlace) and profile.scheme.id_header.lower() not in map(str.lower, place.names):
        raise WebhookError(f"the {place} is not signed: name a place in the body", ("order_id",))
    return place


def _check_readable(declared: declaration.WebhookDeclaration, profile: Profile) -> None:
    """Check that the profile's place of the ID is the place in all events of the webhook."""
    if declared.order_id is not None or declared.order_ids is not None or profile.readable is None:
        return
    for index, pattern in enumerate(declared.events or ()):
        if not _matches(profile.readable, pattern) or _matches(PROFILES[declared.profile].ignore, pattern):
            raise WebhookError(
                f"needs the key `order_id` for {pattern!r}. The profile contains the place of the ID only for"
                f" {', '.join(profile.readable)}",
                ("events", index),
            )


def _profile_of(declared: declaration.WebhookDeclaration) -> Profile:
    """The profile, with the values of the webhook."""
    if declared.profile == "hmac":
        if declared.signature is None:
            raise WebhookError("the profile `hmac` needs the table `signature`")
        base = _signed_as(declared.signature)
    elif declared.signature is not None:
        raise WebhookError("`signature` is for the profile `hmac`", ("signature",))
    else:
        base = PROFILES[declared.profile]
    return replace(
        base,
        event=_event(declared) or base.event,
        events=tuple(declared.events) if declared.events is not None else base.events,
        ignore=tuple(declared.ignore) if declared.ignore is not None else base.ignore,
        order_id=_place(declared.order_id, "order_id") or base.order_id,
        delivery_id=_place(declared.delivery_id, "delivery_id") or base.delivery_id,
        event_time=_place(declared.event_time, "event_time") or base.event_time,
    )


def _event(declared: declaration.WebhookDeclaration) -> Place | EachPlace | None:
    """The place of the event's name, which may be in each element of the list of `order_ids`."""
    if not isinstance(declared.event, str) or "[]" not in declared.event:
        return _place(declared.event, "event")
    with below("event"):
        event = compile_each(declared.event)
        if (declared.order_ids or "").partition("[]")[0] != event.text.partition("[]")[0]:
            raise WebhookError("needs `order_ids` with the same list")
        return event


def _signed_as(declared: declaration.Signature) -> Profile:
    """The profile of a sender that is described by the file."""
    _check_template(declared)
    before, _, after = declared.signed.partition("{body}")
    scheme = HeaderScheme(
        names=(_header(declared.header, "header"),),
        decode=decode_hex if declared.encoding == "hex" else decode_base64,
        prefix=declared.prefix,
        before=before,
        after=after,
        timestamp_header=_header(declared.timestamp_header, "timestamp_header"),
        timestamp_divisor=1_000 if declared.timestamp_unit == "ms" else 1,
        id_header=_header(declared.id_header, "id_header"),
    )
    return Profile(
        scheme,
        partial(hmac_key, encoding=declared.key, algorithm=declared.algorithm),
        has_timestamp=bool(scheme.timestamp_header),
        delivery_id=HeaderPlace((scheme.id_header,)) if scheme.id_header else None,
    )


def _check_template(declared: declaration.Signature) -> None:
    """Check that all is signed that is used, and that all is used that is signed."""
    found = _PLACEHOLDER.findall(declared.signed)
    if found.count("body") != 1 or len(found) != len(set(found)) or set(found) - {"body", "timestamp", "id"}:
        raise WebhookError("needs {body} once, and may have {timestamp} and {id} once", ("signature", "signed"))
    for name, header in (("timestamp", declared.timestamp_header), ("id", declared.id_header)):
        if (name in found) != (header is not None):
            raise WebhookError(f"{{{name}}} in `signed` and the key `{name}_header` need each other", ("signature",))
    if "}{" in declared.signed:
        raise WebhookError(
            "needs a separator, such as a dot, between two placeholders: otherwise the end of one may be read as the other",
            ("signature", "signed"),
        )


def _header(name: str | None, key: str) -> str:
    with below("signature"):
        return header_name(name, key) if name is not None else ""


def _place(declared: declaration.Place | None, key: str) -> Place | None:
    with below(key):
        return compile_place(declared) if declared is not None else None


def _matches(patterns: Iterable[str], event: str) -> bool:
    expressions = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    return any(re.fullmatch(expression, event, re.DOTALL) for expression in expressions)
