"""Responds to the challenge by which a sender verifies the URL of a webhook before it sends events.

The sender requests the URL by GET with a random text in the query. Usual senders expect the text itself. eBay expects a digest of the
text, a token and the URL.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from multidict import MultiMapping

from ingest.api.webhooks import declaration
from ingest.api.webhooks.declaration import WebhookError, below
from ingest.files.regular import read_text

_LARGEST_TOKEN_FILE = 64 * 1024
# Longer texts are no challenges.
_LONGEST = 1_000


class NoChallenge(Exception):
    """The request contains no valid challenge. The message contains no part of it."""


class DeniedChallenge(NoChallenge):
    """The request does not contain the token that the sender and the operator share."""


@dataclass(frozen=True, slots=True)
class ChallengeResponse:
    """The response to a challenge.

    Attributes:
        is_json: Whether the text is JSON, or else plain text.
    """

    text: str
    is_json: bool


@dataclass(frozen=True, slots=True)
class Challenge:
    """The challenge of a webhook.

    Attributes:
        parameter: Contains the text.
        token: Shared with the sender, or None.
        token_parameter: Contains the token, or None if the request does not contain it.
        endpoint: The URL as entered at the sender, for a response with a digest. None for the text itself.
    """

    parameter: str
    token: str | None = field(default=None, repr=False)
    token_parameter: str | None = None
    endpoint: str | None = None

    def response(self, query: MultiMapping[str]) -> ChallengeResponse:
        """Return the response to a request with this query.

        Raises:
            NoChallenge: It is not a challenge.
        """
        given = query.getall(self.parameter, [])
        if len(given) != 1 or not (0 < len(given[0]) <= _LONGEST and given[0].isascii() and given[0].isprintable()):
            raise NoChallenge(f"the query needs one parameter {self.parameter}")
        text = given[0]
        if self.token_parameter is not None:
            shown = query.get(self.token_parameter, "")
            if not hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), (self.token or "").encode()):
                raise DeniedChallenge(f"the parameter {self.token_parameter} is wrong")
        if self.endpoint is None:
            return ChallengeResponse(text, is_json=False)
        digest = hashlib.sha256(f"{text}{self.token}{self.endpoint}".encode()).hexdigest()
        return ChallengeResponse(msgspec.json.encode({"challengeResponse": digest}).decode(), is_json=True)


def compile_challenge(declared: str | declaration.Challenge, folder: Path) -> Challenge:
    """Compile a challenge, and read its token.

    Raises:
        WebhookError: It cannot be used.
    """
    if isinstance(declared, str):
        declared = declaration.Challenge(parameter=declared)
    if not declared.parameter.isprintable() or not declared.parameter:
        raise WebhookError("needs the name of a query parameter, such as hub.challenge")
    needs_token = declared.token_parameter is not None or declared.endpoint is not None
    if needs_token != (declared.token_file is not None):
        raise WebhookError(
            "`token_file` is missing: `token_parameter` and `endpoint` need a token"
            if needs_token
            else "`token_file` needs `token_parameter`, where the sender shows the token, or `endpoint`"
        )
    token = None if declared.token_file is None else _token(folder / declared.token_file)
    return Challenge(declared.parameter, token, declared.token_parameter, declared.endpoint)


def _token(path: Path) -> str:
    with below("token_file"):
        try:
            lines = read_text(path, _LARGEST_TOKEN_FILE, "a file with a token").splitlines()
        except ValueError as error:
            raise WebhookError(str(error)) from None
        tokens = [token for line in lines if (token := line.strip()) and not token.startswith("#")]
        if len(tokens) != 1:
            raise WebhookError(f"{path} must contain one token")
        return tokens[0]
