"""A copy of the tree in which one safeguard at a time is missing. The working tree is never changed."""

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ablation.safeguards import ROOT, Safeguard

# Seconds. A test that waits for an event that never happens has noticed.
_TEST, _RUN = 60, 240
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)
# The change itself is wrong, so that any test would fail.
_BROKEN = re.compile(r"SyntaxError|NameError|UnboundLocalError|ImportError|Error compiling script|nonexistent global")


class Copy:
    """A copy of all tracked files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._times = itertools.count(1)

    @classmethod
    @contextmanager
    def made(cls) -> Iterator["Copy"]:
        """Copy the tree, and delete the copy in the end."""
        with TemporaryDirectory(prefix="ingest-ablation-") as folder:
            root = Path(folder)
            listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True, text=True).stdout
            for name in filter(None, names.split("\0")):
                if (ROOT / name).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, root / name)
            (root / ".venv").symlink_to(ROOT / ".venv")
            yield cls(root)

    @contextmanager
    def without(self, safeguard: Safeguard) -> Iterator[None]:
        """Remove a safeguard while the block runs.

        Raises:
            ValueError: if its change does not apply.
        """
        changed = safeguard.without(self.root)
        before = {self.root / name: ((self.root / name).read_bytes(), (self.root / name).stat()) for name in changed}
        try:
            for name, text in changed.items():
                path = self.root / name
                path.write_text(text, encoding="utf-8")
                # Cached bytecode is valid for a time in seconds, and a size.
                time = before[path][1].st_mtime + next(self._times)
                os.utime(path, (time, time))
            yield
        finally:
            for path, (content, about) in before.items():
                path.write_bytes(content)
                os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    def run(self, tests: Sequence[str], *options: str) -> "Run":
        """Run tests in this copy."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--timeout={_TEST}",
            *options,
            *tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        environment.pop("PYTEST_ADDOPTS", None)
        with subprocess.Popen(
            command, cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=_RUN if "-x" in options else None)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return Run(1, f"FAILED {tests[0]} (no end after {_RUN} s)")
        return Run(process.returncode, output)


class Run:
    """The end of a run of tests.

    Attributes:
        failed: node IDs of failed tests.
        output: of pytest.
    """

    def __init__(self, code: int, output: str) -> None:
        self.output = output
        self.failed = _FAILED.findall(output)
        self.has_passed = code == 0
        # Tests ran and failed, by an effect of the change.
        self.has_noticed = code == 1 and bool(self.failed) and not _BROKEN.search(output)
