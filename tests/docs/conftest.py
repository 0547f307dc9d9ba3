"""The built site, once for all test processes."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from servers.get import CHROMIUM

from docs.links import Site

# Without a browser, its test is left out, as the console's.
collect_ignore = [] if CHROMIUM.is_there() else ["test_search.py"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            build(folder.with_suffix(".new"))
            folder.with_suffix(".new").rename(folder)
    return Site(folder)


def build(folder: Path) -> None:
    command = [
        "-q",
        "-W",
        "--keep-going",
        "-j",
        "auto",
        "-b",
        "html",
        "-d",
        str(folder.with_suffix(".trees")),
        "docs",
        str(folder),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
