"""Keeps the service of a release for the tests of the next one.

The archive omits laboratory, demo and benchmarks, which make up most of the wheel. The same wheel results in the same bytes.
"""

import io
import lzma
import tarfile
import zipfile
from pathlib import Path

_LEFT_OUT = ("ingest/lab/", "ingest/demo/", "ingest/bench/")


def kept_name(version: str) -> str:
    """The file's name in tests/releases."""
    return f"order_ingest-{version}.tar.xz"


def keep(wheel: Path, version: str, folder: Path) -> Path:
    """Write the service's part of the wheel, and remove the archives of other releases."""
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.glob("order_ingest-*.tar.xz"):
        other.unlink()
    plain = io.BytesIO()
    with zipfile.ZipFile(wheel) as source, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as target:
        for name in sorted(source.namelist()):
            if name.startswith(_LEFT_OUT):
                continue
            entry = tarfile.TarInfo(name)
            entry.size = source.getinfo(name).file_size
            entry.mode = 0o644
            target.addfile(entry, source.open(name))
    kept = folder / kept_name(version)
    kept.write_bytes(lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return kept
