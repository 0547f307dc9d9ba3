"""Sends a trace to a real OTLP receiver, and looks at it in a real viewer: `make traces`.

`ingest api` and `ingest worker` run as commands. A signed webhook announces an order, which is fetched, stored and acked. An OpenTelemetry
Collector receives the spans and converts them for Zipkin. A browser takes a picture of the trace there.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import webhook_requests as made
from browser.visitor import chromium
from support import eventually_sync
from traces.receivers import Receivers, running_receivers
from webhook_requests import STANDARD_SECRET

from ingest.lab.commands import Command, Commands
from ingest.lab.servers import embedded_servers
from ingest.lab.servers.server import free_port

WEBHOOK = """
[sources.shop]
profile = "standard"
secret_files = ["standard"]
order_id = "data.id"
events = ["order.*"]
"""
STEPS = ("post /v1/webhooks/{webhook}", "enqueue", "deliver", "queue wait", "fetch", "map", "store", "ack")
# Zipkin shows names in lower case. A parent of each step but the first.
PARENTS = {"enqueue": STEPS[0], "deliver": "enqueue"}
_WITHIN = 60.0
PICTURES = Path(__file__).parents[2] / "build" / "pictures"


def main() -> int:
    """Show a trace, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    pictures = parser.parse_args().pictures
    with (
        tempfile.TemporaryDirectory(prefix="ingest-traces-") as name,
        running_receivers(Path(name)) as receivers,
        embedded_servers() as servers,
        Commands(Path(name) / "home") as commands,
    ):
        port = free_port()
        home = commands.home
        (home / "standard").write_text(STANDARD_SECRET)
        (home / "webhooks.toml").write_text(WEBHOOK)
        upstream = commands.start("upstream", "--port", "0", "--any-id", "--latency", "0.1-0.2")
        commands.configure({
            "INGEST_REDIS_URL": servers.redis_url,
            "INGEST_POSTGRES_DSN": servers.postgres_dsn,
            "INGEST_UPSTREAM_URL": upstream.first_url(),
            "INGEST_WEBHOOKS": str(home / "webhooks.toml"),
            "INGEST_API_PORT": str(port),
            "INGEST_METRICS_PORT": "0",
            "INGEST_API_METRICS_PORT": "0",
            "INGEST_OTLP_ENDPOINT": receivers.otlp,
            "INGEST_OTLP_SAMPLING": "1",
            "INGEST_LOG_FORMAT": "json",
        })  # fmt: skip
        commands.start("migrate").finish()
        commands.start("api")
        worker = commands.start("worker", "--processes", "1")
        began = time.monotonic()
        _announce(f"http://127.0.0.1:{port}/v1/webhooks/shop", "536365")
        trace = eventually_sync(lambda: _trace_of(receivers, "536365"), within=_WITHIN, every=0.5)
        seconds = time.monotonic() - began
        _report(trace, seconds)
        asyncio.run(_picture(receivers, trace[0]["traceId"], pictures / "trace.png"))
        return 0 if _is_right(trace) and _is_logged(worker, receivers) else 1


def say(line: str) -> None:
    """Print a line of the result."""
    sys.stdout.write(f"{line}\n")


def _announce(url: str, order_id: str) -> None:
    body = json.dumps({"type": "order.created", "data": {"id": order_id}}).encode()
    request = urllib.request.Request(url, data=body, headers=made.standard(body, at=time.time()), method="POST")

    def sent() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return b"accepted" in response.read()
        except OSError:
            return False  # it starts

    eventually_sync(sent, within=_WITHIN, every=0.2)


def _trace_of(receivers: Receivers, order_id: str) -> list[dict[str, Any]] | None:
    """The spans of the trace of an order, once all steps have arrived."""
    url = f"{receivers.zipkin}/api/v2/traces?serviceName=ingest-worker&limit=100"
    with urllib.request.urlopen(url, timeout=10) as response:
        traces: list[list[dict[str, Any]]] = json.load(response)
    for trace in traces:
        is_of_order = any(span.get("tags", {}).get("ingest.order_id") == order_id for span in trace)
        if is_of_order and {span["name"] for span in trace} >= set(STEPS):
            return sorted(trace, key=lambda span: span["timestamp"])
    return None


def _report(trace: list[dict[str, Any]], seconds: float) -> None:
    first = trace[0]["timestamp"]
    say(f"The trace of the order was in Zipkin {seconds:.1f} s after the webhook:\n")
    say(f"{'span':32} {'service':14} {'begins':>10} {'lasts':>10}")
    for span in trace:
        service = span["localEndpoint"]["serviceName"]
        begins, lasts = (span["timestamp"] - first) / 1000, span.get("duration", 0) / 1000
        say(f"{span['name']:32} {service:14} {begins:7.1f} ms {lasts:7.1f} ms")


def _is_right(trace: list[dict[str, Any]]) -> bool:
    spans = {span["name"]: span for span in trace}
    wrong = [name for name in STEPS[1:] if spans[name].get("parentId") != spans[PARENTS.get(name, "deliver")]["id"]]
    for name in wrong:
        say(f"wrong: the parent of {name}")
    return not wrong


def _is_logged(worker: Command, receivers: Receivers) -> bool:
    has_started = '"event": "tracing"' in worker.log.read_text()
    has_received = "otelcol.signal" in receivers.log.read_text()
    if not (has_started and has_received):
        say("wrong: the logs of the worker or of the Collector")
    return has_started and has_received


async def _picture(receivers: Receivers, trace_id: str, file: Path) -> None:
    """Take a picture of the trace in Zipkin's page."""
    file.parent.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(f"{receivers.zipkin}/zipkin/traces/{trace_id}", wait_until="networkidle")
        await page.get_by_text("queue wait").first.wait_for(timeout=30_000)
        await page.screenshot(path=file)
    say(f"\nPicture: {file}")


if __name__ == "__main__":
    sys.exit(main())
