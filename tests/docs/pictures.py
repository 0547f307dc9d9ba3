"""Writes the pictures of the documentation from a running system: `make screenshots`.

Three shops, a worker, the HTTP API with the console, and Prometheus run for some minutes. One shop is down for a while. The
console is photographed by Chromium, `ingest top` and `ingest demo` are real output, and the dashboard is drawn from the
results of its queries, because Grafana itself is in no package registry.
"""

import asyncio
import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import yaml
from browser.visitor import chromium
from deploy.plots import draw
from deploy.queries import Prometheus, Questions
from deploy.watching import Panel, panels, read_dashboards
from PIL import Image

from docs.stage import Stage
from docs.terminal import picture, printed_on_terminal
from ingest.lab.servers import embedded_servers

ROOT = Path(__file__).parents[2]
RATES = {"shop-de": 40, "shop-uk": 25, "marketplace": 8}
BEHAVIOUR = {
    "shop-de": ["--latency", "0.1-0.3", "--error-rate", "0.02"],
    "shop-uk": ["--latency", "lognormal:0.2,0.4", "--not-found-rate", "0.003"],
    "marketplace": ["--latency", "0.2-0.4"],
}
SECONDS = 180
STEP = 4
OUTAGE = (80, 115)
PAGES = {
    "console-overview": "/console/",
    "console-order": "/console/orders/show?source=shop-uk&id=536365",
    "console-dead-letters": "/console/dead-letters?source=shop-uk",
}
UNKNOWN = ("SO-20311", "SO-20312", "SO-20347", "SO-20402")
SHOWN = {
    "At a glance": None,
    "Queues": ("Age of the oldest unfinished order", "Unfinished orders", "Consumers of the group"),
    "External API": ("Requests by response", "Duration of a request", "Orders in flight"),
}
MAXIMUM_BYTES = 200_000


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        sys.exit("this needs Prometheus: apt-get install prometheus")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    demo = printed_on_terminal(["ingest", "demo"], columns=96, seconds=300, env={**os.environ, "PATH": path})
    picture(folder / "demo.svg", "ingest demo", demo)
    with TemporaryDirectory(prefix="ingest-") as home, embedded_servers(durable=True) as servers:
        (Path(home) / "folder").mkdir()
        stage = Stage(Path(home) / "folder", servers.redis_url, servers.postgres_dsn)
        try:
            url = start(stage, prometheus)
            photograph(stage, url, folder)
        finally:
            stage.close()
    too_large = [path.name for path in folder.glob("*.*g") if path.stat().st_size > MAXIMUM_BYTES]
    sys.exit(f"too large: {too_large}" if too_large else 0)


def start(stage: Stage, prometheus: str) -> str:
    """Start everything, wait until there is something to see, and return the URL of Prometheus."""
    stage.use_servers()
    stage.run("migrate")
    for number, name in enumerate(RATES):
        stage.start("upstream", "--port", str(stage.port(8081 + number)), "--seed", "1", *BEHAVIOUR[name])
    sections = [
        f'[sources.{name}.upstream]\nurl = "http://127.0.0.1:{stage.port(8081 + number)}/orders/{{order_id}}"\n'
        for number, name in enumerate(RATES)
    ]
    (stage.folder / "sources.toml").write_text("\n".join(sections), "utf-8")
    stage.env |= {"INGEST_SOURCES": "sources.toml", "INGEST_PROCESSES": "2"}
    stage.start("worker")
    stage.start("api")
    jobs = {"ingest": 9464, "ingest-api": 9465, "prometheus": 9090}
    configuration = {
        "global": {"scrape_interval": f"{STEP}s"},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{stage.port(port)}"]}]}
            for job, port in jobs.items()
        ],
    }
    (stage.folder / "prometheus.yml").write_text(yaml.safe_dump(configuration), "utf-8")
    stage.start_program(
        prometheus, "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
        f"--web.listen-address=127.0.0.1:{stage.port(9090)}",
    )  # fmt: skip
    for name, rate in RATES.items():
        sample = ["--sample", str(rate * (SECONDS + 60)), "--rate", str(rate)]
        stage.start_program("ingest", "enqueue", "--source", name, *sample)
    stage.run("enqueue", "--source", "shop-uk", *UNKNOWN)
    began = time.monotonic()
    for at, error_rate in zip(OUTAGE, (1, 0), strict=True):
        time.sleep(max(0.0, began + at - time.monotonic()))
        behave(stage.port(8083), error_rate=error_rate)
    time.sleep(max(0.0, began + SECONDS - time.monotonic()))
    return f"http://127.0.0.1:{stage.port(9090)}"


def behave(port: int, **behaviour: float) -> None:
    """Change the behaviour of a simulated shop."""
    request = Request(f"http://127.0.0.1:{port}/behaviour", json.dumps(behaviour).encode(), method="PATCH")
    with urlopen(request, timeout=10):
        pass


def photograph(stage: Stage, prometheus_url: str, folder: Path) -> None:
    """Write all pictures of the running system."""
    behave(stage.port(8083), error_rate=1)
    time.sleep(10)
    screen = printed_on_terminal(["ingest", "top"], columns=96, lines=20, seconds=6, env=stage.env, folder=stage.folder)
    picture(folder / "top.svg", "ingest top", screen)
    asyncio.run(visit(f"http://127.0.0.1:{stage.port(8080)}", folder))
    behave(stage.port(8083), error_rate=0)

    dashboard = read_dashboards()["overview"]
    prometheus = Prometheus(prometheus_url, time.time(), SECONDS, STEP)
    questions = Questions(prometheus)
    questions.ask_for_variables(dashboard)
    answered = [(panel, questions.ask_panel(panel)) for panel in chosen(list(panels(dashboard)))]
    draw(folder / "dashboard.png", dashboard["title"], answered, prometheus.times)
    shrink(folder / "dashboard.png", 1400)


def chosen(every: list[Panel]) -> list[Panel]:
    """The shown panels, one section below the other."""
    shown: list[Panel] = []
    below = 0
    for title, names in SHOWN.items():
        first = next(number for number, panel in enumerate(every) if (panel.kind, panel.title) == ("row", title))
        last = next((n for n, panel in enumerate(every) if n > first and panel.kind == "row"), len(every))
        section = [every[first], *(p for p in every[first + 1 : last] if names is None or p.title in names)]
        top = section[0].place.y
        section = [replace(panel, place=replace(panel.place, y=panel.place.y - top + below)) for panel in section]
        below = max(panel.place.y + panel.place.height for panel in section)
        shown += section
    return shown


async def visit(url: str, folder: Path) -> None:
    """Photograph pages of the console."""
    async with chromium() as browser:
        context = await browser.new_context(viewport={"width": 1400, "height": 660}, color_scheme="light")
        page = await context.new_page()
        for name, path in PAGES.items():
            await page.goto(url + path)
            await page.wait_for_timeout(12_000 if name == "console-overview" else 1_000)  # rates need some seconds
            await page.screenshot(path=folder / f"{name}.png")
            shrink(folder / f"{name}.png", 1200)


def shrink(path: Path, width: int) -> None:
    """Reduce a PNG to this width and 128 colours."""
    with Image.open(path) as image:
        height = round(image.height * width / image.width)
        small = image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        small.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
