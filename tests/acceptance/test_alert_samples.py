"""Each alert has samples to evaluate in a deployment of workers and the HTTP API, without an exporter."""

import asyncio
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path

import pytest
from acceptance.commands import Workers, closing_workers
from deploy.promql import selectors
from integration.scene import Scene
from prometheus_client.parser import text_string_to_metric_families
from rehearsals.alerting.configuration import rules
from rehearsals.alerting.deployments import DEPLOYMENTS
from support import Cli, eventually

from ingest.domain.source_name import queue_of
from ingest.lab.servers.server import free_port
from ingest.queue.produce.producer import Producer

# Only a source with a list, several partitions or a webhook has the first ones. Prometheus itself adds `up`.
_OF_SOME = ("ingest_source_lag_seconds", "ingest_source_poll_seconds", "ingest_partition_depth", "ingest_webhook", "up")


@pytest.fixture
def workers(cli: Cli) -> Iterator[Workers]:
    with closing_workers(cli, {}) as workers:
        yield workers


def _get(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except ConnectionRefusedError:
        return ""
    finally:
        connection.close()


def _metrics(port: int) -> dict[str, list[dict[str, str]]]:
    text = _get(port, "/metrics")
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, [])
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


async def test_each_alert_has_samples_when_only_workers_and_the_api_run(
    scene: Scene, cli: Cli, workers: Workers, queue_name: str, tmp_path: Path
) -> None:
    file, ports, api = tmp_path / "sources.toml", (free_port(), free_port()), free_port()
    file.write_text(
        "".join(f'[sources.{name}]\nupstream.url = "{scene.api.url_template}"\n' for name in ("own", "other"))
    )
    settings = {"INGEST_SOURCES": str(file), "INGEST_STREAM": queue_name}
    cli.env.update(settings)
    await Producer(scene.redis, queue_of(queue_name, "other")).enqueue(["waits"])
    await Producer(scene.redis, queue_of(queue_name, "own")).enqueue(["order"])
    workers.start("--source", "own", metrics_port=ports[0], processes=1)
    cli.start("api", "--port", str(api), env={**settings, "INGEST_API_METRICS_PORT": str(ports[1])})

    async def exported() -> dict[str, list[dict[str, str]]]:
        await asyncio.to_thread(_get, api, "/v1/queue")
        pages = [await asyncio.to_thread(_metrics, port) for port in ports]
        found = pages[0] | pages[1]
        # A series may appear with the first request.
        return {} if any(_missing(found).values()) else found

    found = await eventually(exported)

    assert {"ingest_queue_depth", "ingest_queue_oldest_age_seconds"} <= {
        name for name, samples in found.items() for labels in samples if labels.get("source") == "other"
    }, "of the source that no worker runs"
    states = found["ingest_source_state_since_seconds"]
    assert [each["state"] for each in states if each["source"] == "other"] == ["no_worker"]


def _missing(found: Mapping[str, object]) -> dict[str, set[str]]:
    """The metrics that each alert reads, directly or by recording rules, and that nothing exports."""
    every = [rule for group in rules(DEPLOYMENTS["compose"], 1)["groups"] for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in every if "record" in rule}
    missing = {}
    for rule in every:
        if "alert" in rule:
            waiting, seen = [rule["expr"]], set[str]()
            while waiting:
                for each in selectors(waiting.pop()):
                    if each.metric in recorded and each.metric not in seen:
                        waiting.append(recorded[each.metric])
                    seen.add(each.metric)
            read = {name for name in seen if name not in recorded and not name.startswith(_OF_SOME)}
            missing[rule["alert"]] = read - found.keys()
    return missing
