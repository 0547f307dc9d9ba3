"""Generates the Grafana dashboards, `dashboards/*.json`.

    python deploy/grafana/generate.py            write the files
    python deploy/grafana/generate.py --check    fail unless the files are current

`overview.py` and `http_api.py` are the dashboards. They share `frame.py`, and `look.py` for the appearance of panels.
"""

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from http_api import http_api
from overview import overview

_FOLDER = Path(__file__).parent / "dashboards"
_DASHBOARDS = {"overview.json": overview, "http-api.json": http_api}


def main() -> int:
    """Write the files, or check that they are current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless the files are current")
    given = parser.parse_args()
    texts = {
        _FOLDER / name: json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        for name, build in _DASHBOARDS.items()
    }
    if given.check:
        stale = [file.name for file, text in texts.items() if not file.exists() or file.read_text("utf-8") != text]
        if stale:
            sys.stderr.write(f"{', '.join(stale)}: not current: run make dashboards\n")
        return 1 if stale else 0
    _FOLDER.mkdir(exist_ok=True)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
