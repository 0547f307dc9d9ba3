"""Each route needs its scope and is in the OpenAPI document."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingest.api.http.routing import Route
from ingest.domain.api_key import Scope
from ingest.services.http.api_connections import RouteConnections
from ingest.services.http.api_routes import RouteCounters, all_described, routes_of
from ingest.services.http.served_sources import ServedSources
from ingest.settings import load_settings
from ingest.telemetry.api_metrics import CODES


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env` counts."""
    monkeypatch.chdir(tmp_path)


def routes(*names: str) -> list[Route]:
    settings = load_settings()
    sources = {name: settings.of_source(name, {}) if name else settings for name in names}
    served = ServedSources(sources, cast("Any", {"": [SimpleNamespace(name="any")]} if "" in names else {}))
    return routes_of(settings, served, RouteConnections.none(sources), RouteCounters.none(sources))


# These list all sources.
OF_ALL_SOURCES = ("/v1/sources", "/v1/workers", "/v1/audit")


def test_each_route_of_a_source_is_below_the_name_of_the_source_with_the_same_scope() -> None:
    unnamed = {f"{route.method} {route.path}": route.scope for route in routes("") if "/webhooks/" not in route.path}
    of_a_source = {
        name: scope
        for name, scope in unnamed.items()
        if "/v1/" in name and not name.split()[1].startswith(OF_ALL_SOURCES)
    }
    below = {name.replace("/v1/", "/v1/sources/{source}/", 1): scope for name, scope in of_a_source.items()}

    assert {f"{route.method} {route.path}": route.scope for route in routes("shop-de")} == unnamed | below
    several = {f"{route.method} {route.path}": route.scope for route in routes("shop-de", "shop-fr")}
    assert several == unnamed | below


def test_each_route_needs_its_scope() -> None:
    assert {f"{route.method} {route.path}": route.scope for route in routes("")} == {
        "GET /healthz": None,
        "GET /readyz": None,
        "GET /openapi.json": None,
        "POST /v1/webhooks/{webhook}": None,
        "GET /v1/webhooks/{webhook}": None,
        "POST /v1/orders": Scope.ENQUEUE,
        "PUT /v1/orders/{order_id}": Scope.PUSH,
        "GET /v1/orders": Scope.READ,
        "GET /v1/orders/{order_id}": Scope.READ,
        "GET /v1/orders/{order_id}/history": Scope.READ,
        "DELETE /v1/orders/{order_id}": Scope.ERASE,
        "GET /v1/sources": Scope.READ,
        "GET /v1/audit": Scope.READ,
        "GET /v1/queue": Scope.READ,
        "GET /v1/queue/consumers": Scope.READ,
        "GET /v1/retries": Scope.READ,
        "GET /v1/retries/groups": Scope.READ,
        "POST /v1/retries/run-now": Scope.OPERATE,
        "POST /v1/retries/dead-letter": Scope.OPERATE,
        "GET /v1/dead-letters": Scope.READ,
        "GET /v1/dead-letters/groups": Scope.READ,
        "GET /v1/dead-letters/export": Scope.READ,
        "GET /v1/dead-letters/{entry}": Scope.READ,
        "POST /v1/dead-letters/replay": Scope.OPERATE,
        "POST /v1/dead-letters/drop": Scope.OPERATE,
        "GET /v1/controls": Scope.READ,
        "POST /v1/pause": Scope.OPERATE,
        "POST /v1/resume": Scope.OPERATE,
        "POST /v1/tune": Scope.OPERATE,
        "GET /v1/workers": Scope.READ,
        "POST /v1/workers/drain": Scope.OPERATE,
        "POST /v1/workers/log-level": Scope.OPERATE,
        "GET /v1/jobs": Scope.READ,
        "POST /v1/jobs": Scope.OPERATE,
        "GET /v1/jobs/{job}": Scope.READ,
        "GET /v1/jobs/{job}/output": Scope.READ,
        "POST /v1/jobs/{job}/cancel": Scope.OPERATE,
        "POST /v1/jobs/{job}/resume": Scope.OPERATE,
        "GET /v1/backfills": Scope.READ,
        "POST /v1/backfills": Scope.OPERATE,
        "GET /v1/backfills/{backfill}": Scope.READ,
        "DELETE /v1/backfills/{backfill}": Scope.OPERATE,
        "POST /v1/backfills/{backfill}/resume": Scope.OPERATE,
    }


def test_every_part_of_a_path_is_a_documented_parameter() -> None:
    for route in (*routes(""), *routes("shop-de"), *routes("shop-de", "shop-fr")):
        named = {parameter.name for parameter in route.documentation.parameters if parameter.place == "path"}
        assert set(re.findall(r"{(\w+)}", route.path)) == named, route.path


def test_every_documented_status_is_counted_under_its_own_code() -> None:
    document = all_described()
    statuses = {
        status
        for operations in document["paths"].values()
        for operation in operations.values()
        for status in operation["responses"]
    }

    assert statuses <= set(CODES)


def test_answers_to_keys_have_the_headers_of_rate_limits_and_challenges() -> None:
    document = all_described()
    operation, problems = document["paths"]["/v1/orders"]["post"], document["components"]["responses"]

    assert {"RateLimit", "RateLimit-Policy"} <= operation["responses"]["202"]["headers"].keys()
    assert {"RateLimit", "RateLimit-Policy", "Retry-After"} <= problems["Problem429"]["headers"].keys()
    assert "WWW-Authenticate" in problems["Problem401"]["headers"].keys() & problems["Problem403"]["headers"].keys()
    assert "RateLimit" not in document["paths"]["/healthz"]["get"]["responses"]["200"]["headers"]
