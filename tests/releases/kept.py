"""The last release, from its archive beside this file, so that its commands run as they were released."""

import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent


def archive() -> Path:
    """The one release that is kept."""
    [found] = FOLDER.glob("order_ingest-*.tar.xz")
    return found


def version() -> str:
    """The version of that release."""
    return archive().name.removeprefix("order_ingest-").removesuffix(".tar.xz")


def last_migration() -> int:
    """The last version of the schema that the release supports."""
    with tarfile.open(archive()) as kept:
        names = [Path(name) for name in kept.getnames()]
    return max(int(name.name[:4]) for name in names if name.parent.name == "migrations" and name.suffix == ".sql")


def unpack(folder: Path) -> dict[str, str]:
    """Unpack the release, and return the variables with which `python -m ingest` runs it instead of the checkout."""
    with tarfile.open(archive()) as kept:
        # Python 3.11.4 and later.
        kept.extraction_filter = getattr(tarfile, "data_filter", None)
        kept.extractall(folder)
    # The working directory would come first.
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
