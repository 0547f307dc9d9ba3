"""The wheel, built and installed without network into an environment that has our dependencies and not the checkout."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
DIST_INFO = f"order_ingest-{VERSION}.dist-info"
PAGES = [
    ROOT / "docs" / page for page in ("enqueue/python.md", "enqueue/python-over-http.md", "reference/python-api.md")
]
UV = Path(sys.executable).with_name("uv")
# Without the checkout and without the user's settings.
_NOT_OURS = ("INGEST_", "PYTHON", "UV_", "VIRTUAL_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=CLEAN, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="ingest-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, folder=ROOT)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of the clean environment."""
    python = folder / "clean" / "bin" / "python"
    run(UV, "venv", "--quiet", "--offline", "--no-project", "--python", sys.executable, "clean", folder=folder)
    run(
        UV,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-cache",
        "--python",
        python,
        wheel,
        folder=folder,
    )
    [packages] = (folder / "clean").glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched, and its own .pth files, the checkout's among them, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_it_carries_what_the_service_needs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    carried = {name for name in names if not name.endswith(".py") and ".dist-info/" not in name}
    written = [path for path in (ROOT / "ingest").rglob("*") if path.is_file() and "__pycache__" not in path.parts]

    assert {name.partition("/")[0] for name in names} == {"ingest", DIST_INFO}
    assert sorted(name for name in names if name.startswith("ingest/")) == sorted(
        str(path.relative_to(ROOT)) for path in written
    )
    assert {"ingest/py.typed", "ingest/queue/lua/enqueue.lua", "ingest/store/migrations/0001_orders.sql"} <= carried
    assert {"ingest/mapping/ready_made/shopify-rest.toml", "ingest/sources/kinds/woocommerce.toml"} <= carried
    bare_loop_in_go = {".go", ".mod", ".sum"}
    assert {Path(name).suffix for name in carried} == {
        ".typed",
        ".lua",
        ".sql",
        ".toml",
        ".gz",
        ".md",
        ".html",
        ".css",
        ".js",
        ".svg",
    } | bare_loop_in_go
    assert f"{DIST_INFO}/licenses/LICENSE" in names


def test_its_metadata_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = email.message_from_bytes(archive.read(f"{DIST_INFO}/METADATA"))

    assert told["Name"] == "order-ingest"
    assert told["Author"] == "The order-ingest contributors"
    assert told["License-Expression"] == "Apache-2.0"
    assert told["Requires-Python"] == ">=3.11"
    assert told["Description-Content-Type"] == "text/markdown"
    assert {url.partition(",")[0] for url in told.get_all("Project-URL", [])} == {
        "Source",
        "Documentation",
        "Changelog",
        "Issues",
    }
    classifiers = {classifier.partition(" :: ")[0] for classifier in told.get_all("Classifier", [])}
    assert {"Development Status", "Framework", "Intended Audience", "Operating System", "Typing"} <= classifiers
    assert {"embedded", "bench"} <= set(told.get_all("Provides-Extra", []))


def test_its_command_and_its_public_names_work_without_the_checkout(installed: Path, folder: Path) -> None:
    ask = """
import sys, ingest, importlib.metadata
assert not [name for name in sys.modules if name.startswith("ingest.")], "imported when it is asked for"
for name in ingest.__all__:
    getattr(ingest, name)
assert set(ingest.__all__) <= set(dir(ingest))
print(ingest.__file__, importlib.metadata.version("order-ingest"))
"""

    imported_from, version = run(installed, "-c", ask, folder=folder).split()
    command = installed.with_name("ingest")

    assert Path(imported_from).is_relative_to(folder.resolve())
    assert "Ingest orders" in run(command, "--help", folder=folder)
    assert run(command, "--version", folder=folder).split() == ["order-ingest", version]


def test_the_programs_of_the_documentation_pass_strict_type_checks_against_it(installed: Path, folder: Path) -> None:
    programs = [
        program
        for page in PAGES
        for program in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    samples = [folder / f"sample_{number}.py" for number in range(len(programs))]
    for path, program in zip(samples, programs, strict=True):
        path.write_text(program)
    (folder / "wrong.py").write_text('from ingest import SyncProducer\n\nSyncProducer("redis://h").enqueue(1)\n')
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", folder / "cache")

    assert "Success" in run(*mypy, "--python-executable", installed, *samples, folder=folder)
    wrong = subprocess.run(
        [*map(str, mypy), "--python-executable", str(installed), "wrong.py"],
        cwd=folder, env=CLEAN, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 'incompatible type "int"' in wrong.stdout
