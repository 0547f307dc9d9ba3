"""Challenges by which senders verify the URL of a webhook."""

import hashlib
import json
from pathlib import Path

import pytest
import webhook_requests as made
from multidict import MultiDict
from webhook_requests import STANDARD_SECRET

from ingest.api.webhooks.challenge import ChallengeResponse, DeniedChallenge, NoChallenge
from ingest.api.webhooks.declaration import WebhookError
from ingest.api.webhooks.webhook import Webhook

TOKEN = "a-token-of-both-sides"


def source(folder: Path, challenge: str) -> Webhook:
    (folder / "token").write_text(f"# for the sender's page\n{TOKEN}\n")
    declared = f'profile = "standard"\norder_id = "id"\n{challenge}'
    return made.webhook(folder, declared, secret=STANDARD_SECRET)


def respond(webhook: Webhook, *query: tuple[str, str]) -> ChallengeResponse:
    assert webhook.challenge is not None
    return webhook.challenge.response(MultiDict(query))


def test_a_challenge_is_returned_as_it_came(tmp_path: Path) -> None:
    webhook = source(tmp_path, 'challenge = "challenge"')

    assert respond(webhook, ("challenge", "a b<c>1")) == ChallengeResponse("a b<c>1", is_json=False)


def test_a_challenge_is_returned_to_whom_knows_the_token(tmp_path: Path) -> None:
    challenge = '[sources.shop.challenge]\nparameter = "hub.challenge"\ntoken_parameter = "hub.verify_token"\ntoken_file = "token"'
    webhook = source(tmp_path, challenge)
    asked = ("hub.challenge", "1158201444")

    assert respond(webhook, ("hub.mode", "subscribe"), asked, ("hub.verify_token", TOKEN)).text == "1158201444"
    for others in ([], [("hub.verify_token", "wrong")], [("hub.verify_token", "")]):
        with pytest.raises(DeniedChallenge):
            respond(webhook, asked, *others)


def test_ebays_challenge_is_answered_by_the_digest_of_the_code_the_token_and_the_endpoint(tmp_path: Path) -> None:
    url = "https://your-host/v1/webhooks/shop"
    challenge = f'[sources.shop.challenge]\nparameter = "challenge_code"\ntoken_file = "token"\nendpoint = "{url}"'

    response = respond(source(tmp_path, challenge), ("challenge_code", "71745723-d031-455c"))

    expected = hashlib.sha256(f"71745723-d031-455c{TOKEN}{url}".encode()).hexdigest()
    assert response.is_json
    assert json.loads(response.text) == {"challengeResponse": expected}


@pytest.mark.parametrize("values", [[], [""], ["a", "b"], ["x" * 1001], ["a\r\nSet-Cookie: x"], ["é"]])
def test_a_request_without_one_short_challenge_is_none(tmp_path: Path, values: list[str]) -> None:
    webhook = source(tmp_path, 'challenge = "challenge"')

    with pytest.raises(NoChallenge):
        respond(webhook, *[("challenge", value) for value in values])


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        ('challenge = ""', "needs the name of a query parameter"),
        ('[sources.shop.challenge]\nparameter = "c"\nendpoint = "https://x"', "`token_file` is missing"),
        ('[sources.shop.challenge]\nparameter = "c"\ntoken_parameter = "t"', "`token_file` is missing"),
        ('[sources.shop.challenge]\nparameter = "c"\ntoken_file = "token"', "`token_file` needs `token_parameter`"),
        ('[sources.shop.challenge]\nparameter = "c"\ntoken_parameter = "t"\ntoken_file = "no"', "cannot read"),
        ('[sources.shop.challenge]\nparameter = "c"\ntoken_parameter = "t"\ntoken_file = "secret"', None),
        ('[sources.shop.challenge]\nparam = "c"', "param"),
    ],
)
def test_a_challenge_that_cannot_be_used_is_rejected(tmp_path: Path, challenge: str, message: str | None) -> None:
    if message is None:
        assert source(tmp_path, challenge).challenge is not None
        return
    with pytest.raises(WebhookError, match=message):
        source(tmp_path, challenge)


def test_the_token_is_in_no_representation(tmp_path: Path) -> None:
    challenge = '[sources.shop.challenge]\nparameter = "c"\ntoken_parameter = "t"\ntoken_file = "token"'

    assert TOKEN not in repr(source(tmp_path, challenge).challenge)
