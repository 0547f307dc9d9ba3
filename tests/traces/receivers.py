"""Gets and runs an OpenTelemetry Collector, which is built by Go, and Zipkin, which Maven downloads, into a folder that all clones share."""

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from servers.get import FOLDER
from support import eventually_sync

from ingest.lab.servers.server import free_port

# The Collector and its exporter for Zipkin share a version.
_COLLECTOR = "v0.148.0"
_ZIPKIN = "3.5.1"
_BUILDER = f"""
dist: {{name: otelcol, output_path: OUTPUT, version: {_COLLECTOR}}}
receivers:
  - gomod: go.opentelemetry.io/collector/receiver/otlpreceiver {_COLLECTOR}
exporters:
  - gomod: go.opentelemetry.io/collector/exporter/debugexporter {_COLLECTOR}
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/zipkinexporter {_COLLECTOR}
"""
# Seconds: a build downloads and compiles a few hundred packages.
_BUILD, _START = 2400.0, 120.0


class MissingTool(Exception):
    """A program is missing that builds or runs a receiver."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """A running Collector, which passes its spans on to a running Zipkin.

    Attributes:
        otlp: where the Collector receives traces.
        zipkin: the viewer, and its API.
        log: of the Collector.
    """

    otlp: str
    zipkin: str
    log: Path


def collector() -> Path:
    """The program, which is built if it is missing."""
    folder = FOLDER / f"otelcol-{_COLLECTOR}"
    program = folder / "otelcol"
    if not program.exists():
        _require("go")
        folder.mkdir(parents=True, exist_ok=True)
        configuration = folder / "builder.yaml"
        configuration.write_text(_BUILDER.replace("OUTPUT", str(folder)))
        builder = f"go.opentelemetry.io/collector/cmd/builder@{_COLLECTOR}"
        _run(["go", "run", builder, "--config", str(configuration)], folder)
    return program


def zipkin() -> Path:
    """The program, which is downloaded if it is missing."""
    program = FOLDER / "zipkin" / f"zipkin-server-{_ZIPKIN}-exec.jar"
    if not program.exists():
        _require("mvn")
        program.parent.mkdir(parents=True, exist_ok=True)
        artifact = f"io.zipkin:zipkin-server:{_ZIPKIN}:jar:exec"
        copying = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={program.parent}"]
        _run(copying, program.parent)
    return program


@contextmanager
def running_receivers(home: Path) -> Iterator[Receivers]:
    """Run both on free ports. `home` is a folder for their logs."""
    _require("java")
    programs = collector(), zipkin()
    ports = {"OTLP_PORT": str(free_port()), "ZIPKIN_PORT": str(free_port())}
    receivers = Receivers(
        f"http://127.0.0.1:{ports['OTLP_PORT']}", f"http://127.0.0.1:{ports['ZIPKIN_PORT']}", home / "collector.log"
    )
    with ExitStack() as stack:
        viewer = ["java", "-Xmx300m", "-jar", str(programs[1])]
        stack.enter_context(_running(viewer, home / "zipkin.log", {"QUERY_PORT": ports["ZIPKIN_PORT"]}))
        configuration = Path(__file__).with_name("collector.yaml")
        stack.enter_context(_running([str(programs[0]), "--config", str(configuration)], receivers.log, ports))
        eventually_sync(lambda: _responds(f"{receivers.zipkin}/health"), within=_START, every=0.5)
        eventually_sync(lambda: "Everything is ready" in receivers.log.read_text(), within=_START, every=0.1)
        yield receivers


@contextmanager
def _running(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise MissingTool(f"{program} is missing: the Collector needs Go, and Zipkin needs Java and Maven")


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=_BUILD)
