"""Checks deploy/systemd with systemd-analyze: `python check_units.py`, by `make lint`, if it is at hand.

No unit may give a warning, and none may be exposed more than 1.5, as `systemd-analyze security` counts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
_MOST_EXPOSED = 1.5


def main() -> int:
    """The exit code is 1 if anything is wrong."""
    if shutil.which("systemd-analyze") is None:
        sys.stdout.write("no systemd-analyze: left out\n")
        return 0
    problems = _warnings() + [problem for unit in UNITS for problem in _exposure(unit)]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems) or f"{len(UNITS)} units are valid\n")
    return 1 if problems else 0


def _warnings() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        copies = []
        for unit in UNITS:
            # The program is not installed here.
            text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text("utf-8"), flags=re.MULTILINE)
            copies.append(Path(folder, unit.name))
            copies[-1].write_text(text, "utf-8")
        done = _analyze("verify", "--man=no", "--generators=no", *map(str, copies))
    output = (done.stdout + done.stderr).strip()
    return [output or "systemd-analyze verify failed"] if output or done.returncode else []


def _exposure(unit: Path) -> list[str]:
    done = _analyze("security", "--offline=true", "--no-pager", str(unit))
    found = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
    if found is None:
        # Before systemd 250, it only supports installed units.
        return []
    return [f"{unit.name}: exposed by {found[1]}"] if float(found[1]) > _MOST_EXPOSED else []


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
