"""The HTTP API, with keys that are created and revoked while it runs."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from deploy.project import DEMO_ORDERS, samples
from deploy.shell import wait_for

if TYPE_CHECKING:
    from deploy.project import Project
    from deploy.shell import Done

# Not one of those that the demo announces.
_ORDER = samples(DEMO_ORDERS, 1)[0]


@pytest.fixture(scope="module")
def key(system: Project) -> str:
    created = keys(system, "create", "shop", "--scope", "enqueue", "--scope", "read")
    assert created.code == 0, created.err
    return created.out.strip()


def keys(system: Project, *arguments: str) -> Done:
    """Run `ingest api-key …` as the owner of the checkout."""
    user = f"{os.getuid()}:{os.getgid()}"
    return system.attempt("run", "--rm", "--no-TTY", "--user", user, "api-key", *arguments)


def announce(system: Project, key: str) -> int:
    request = urllib.request.Request(
        f"http://127.0.0.1:{system.ports['API_PORT']}/v1/orders",
        json.dumps({"order_ids": [_ORDER]}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_nobody_is_admitted_without_a_key(system: Project) -> None:
    assert announce(system, "ingest_none") == 401


def test_an_order_that_is_announced_with_a_key_is_stored(system: Project, key: str) -> None:
    wait_for("the key is in force", lambda: announce(system, key) == 202, within=10)

    system.wait_until_stored([_ORDER], within=20)


def test_a_revoked_key_is_refused(system: Project, key: str) -> None:
    assert keys(system, "revoke", "shop").code == 0

    wait_for("the key is refused", lambda: announce(system, key) == 401, within=10)
    (api,) = system.containers("api")
    assert api.metric("ingest_api_denied_total", reason="unknown_key") >= 1


def test_no_key_is_in_a_log_and_redis_has_refused_nothing(system: Project, key: str) -> None:
    (api,) = system.containers("api")
    said = system.docker.attempt("logs", api.id)

    assert key not in said.out + said.err
    assert system.refused_commands() == []
