"""`make release`: checks that tag, version and changelog agree, then builds what a release consists of into dist/.

The wheel is built from the sdist, so that the sdist is known to be complete. Both, and the bill of materials, are the same
bytes wherever the same commit is built with the same tools. Nothing is published from here: see .github/workflows/release.yml.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import changelog
from keep import keep, kept_name

ROOT = Path(__file__).resolve().parents[2]
SUMS, NOTES = "SHA256SUMS", "RELEASE_NOTES.md"
KEPT = "tests/releases"
_IMAGE = "order-ingest"


class Refused(Exception):
    """The release cannot be built; the message says why, a line each."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is built: a commit of this project.

    Attributes:
        root: of the checkout.
        version: that pyproject.toml says.
        changelog: the text of CHANGELOG.md.
        revision: the commit.
        epoch: when it was committed, in Unix seconds.
        tags: that point to the commit.
        changed: files that differ from the commit.
    """

    root: Path
    version: str
    changelog: str
    revision: str
    epoch: int
    tags: Sequence[str]
    changed: Sequence[str]


def source_in(root: Path) -> Source:
    """Look at a checkout."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    revision, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    return Source(
        root=root,
        version=project["version"],
        changelog=(root / "CHANGELOG.md").read_text(encoding="utf-8"),
        revision=revision,
        epoch=int(epoch),
        tags=_git(root, "tag", "--points-at", "HEAD").split(),
        changed=_git(root, "status", "--porcelain").splitlines(),
    )


def problems(source: Source, tag: str | None) -> list[str]:
    """Why this is not a release, a line each; `tag` is the one that the release is built for, if that is known."""
    expected = f"v{source.version}"
    found = changelog.disagreements(source.version, source.changelog)
    if tag is not None and tag != expected:
        found.append(f"the tag is {tag}, but pyproject.toml has the version {source.version}: it should be {expected}")
    if expected not in source.tags:
        found.append(f"the commit has no tag {expected}: `git tag {expected}`, or ARGS=--rehearse to build without one")
    if source.changed:
        found.append(f"{len(source.changed)} files differ from the commit: {source.changed[0].strip()}, …")
    return found + kept_release_problems(source)


def refuse(found: Sequence[str]) -> None:
    """End with these problems, if there are any.

    Raises:
        Refused: names all of them.
    """
    if found:
        raise Refused("\n".join(found))


def kept_release_problems(source: Source) -> list[str]:
    """The tests of two releases need the release before this one."""
    earlier = [section.name for section in changelog.released(source.changelog) if section.name != source.version]
    kept = sorted(path.name for path in (source.root / KEPT).glob("*.tar.xz"))
    if not earlier or kept == [kept_name(earlier[0])]:
        return []
    has = ", ".join(kept) or "nothing"
    return [f"{KEPT} should have {kept_name(earlier[0])}, the release before, and nothing else; it has {has}"]


def build(source: Source, output: Path, image: str | None) -> list[str]:
    """Build everything; return what was left out and why, a line each."""
    output.mkdir(exist_ok=True)
    for old in [*output.glob("order_ingest-*"), *output.glob("order-ingest-*"), output / SUMS, output / NOTES]:
        old.unlink(missing_ok=True)
    sdist = build_sdist(source, output)
    wheel = build_wheel(source, sdist, output)
    bill = build_bill(source, output)
    files = [sdist, wheel, bill]
    (output / SUMS).write_text("".join(f"{_sha256(file)}  {file.name}\n" for file in files))
    notes = [section.text for section in changelog.sections(source.changelog) if section.text]
    (output / NOTES).write_text(notes[0] + "\n" if notes else "")
    if image is None:
        return ["the image: --no-image"]
    if not has_docker():
        return ["the image: no Docker engine answers"]
    build_image(source, image)
    return []


def build_sdist(source: Source, output: Path) -> Path:
    """Build the source distribution."""
    _hatchling(source, source.root, "sdist", output)
    return _only(output, "order_ingest-*.tar.gz")


def build_wheel(source: Source, sdist: Path, output: Path) -> Path:
    """Build the wheel from the source distribution."""
    with tempfile.TemporaryDirectory(prefix="ingest-release-") as folder:
        with tarfile.open(sdist) as archive:
            # Python 3.11.2, which Debian 12 has, knows no filters. The archive is our own.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(folder)  # noqa: S202
        _hatchling(source, _only(Path(folder), "order_ingest-*"), "wheel", output)
    return _only(output, "order_ingest-*.whl")


def build_bill(source: Source, output: Path) -> Path:
    """Write the bill of materials (CycloneDX) of what the image installs: the service and its locked packages."""
    bill = output / f"order-ingest-{source.version}.cdx.json"
    # The address of somebody's own package index does not belong into it: the lock has none either.
    _run(
        source,
        # The lock does not say which package needs which other; a warning says so.
        sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements", "requirements.lock",
        "--index-url", "https://pypi.org/simple", "--short-PURLs",
        "--pyproject", "pyproject.toml", "--mc-type", "application",
        "--output-reproducible", "--validate", "--output-file", bill,
        folder=source.root,
    )  # fmt: skip
    named = json.loads(bill.read_text())["metadata"]["component"]
    if (named["name"], named["version"]) != ("order-ingest", source.version):
        raise Refused(f"the bill of materials is that of {named['name']} {named['version']}")
    return bill


def image_tags(image: str, version: str) -> list[str]:
    """The names of the image: a release candidate gets only its own version."""
    if not re.fullmatch(r"[\d.]+", version):
        return [f"{image}:{version}"]
    major, minor, _ = version.split(".")
    return [f"{image}:{name}" for name in (version, f"{major}.{minor}", "latest")]


def has_docker() -> bool:
    """Whether a Docker engine answers."""
    try:
        asked = subprocess.run(["docker", "version"], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def build_image(source: Source, image: str) -> None:
    """Build the image under all its names."""
    tags = [part for name in image_tags(image, source.version) for part in ("--tag", name)]
    labels = {"version": source.version, "revision": source.revision}
    labelled = [
        part for name, value in labels.items() for part in ("--label", f"org.opencontainers.image.{name}={value}")
    ]
    _run(source, "docker", "build", *tags, *labelled, ".", folder=source.root)


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for."""
    options = _parser().parse_args(arguments)
    try:
        source = source_in(options.root)
        if options.prepare:
            text = changelog.prepared(source.version, source.changelog, datetime.now(UTC).date())
            (options.root / "CHANGELOG.md").write_text(text, encoding="utf-8")
            _say(f"CHANGELOG.md: what was unreleased is {source.version} now; commit it, and tag v{source.version}")
            return 0
        if not options.rehearse:
            refuse(problems(source, options.tag))
        output = options.root / "dist"
        left_out = build(source, output, None if options.no_image else options.image)
        if options.keep:
            kept = keep(_only(output, "order_ingest-*.whl"), source.version, options.root / KEPT)
            _say(f"{KEPT}/{kept.name}: for the tests of the next release; commit it")
    except (Refused, ValueError) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"release: {line}\n")
        return 1
    for file in sorted(output.iterdir()):
        _say(f"dist/{file.name}  {file.stat().st_size:,} bytes")
    for line in left_out:
        _say(f"left out: {line}")
    _say(f"{'rehearsed' if options.rehearse else 'built'} {source.version} of {source.revision}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make release", description="Build a release into dist/.")
    parser.add_argument("--tag", help="the tag that is released, for a check (default: one that points to the commit)")
    parser.add_argument("--rehearse", action="store_true", help="build without a tag and a finished changelog")
    parser.add_argument("--prepare", action="store_true", help="date the changelog's unreleased entries, build nothing")
    parser.add_argument(
        "--keep", action="store_true", help=f"put the release into {KEPT}, for the tests of the next one"
    )
    parser.add_argument("--no-image", action="store_true", help="build no image")
    parser.add_argument("--image", default=_IMAGE, help="the image's name (default: %(default)s)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    return parser


def _hatchling(source: Source, folder: Path, target: str, output: Path) -> None:
    _run(source, sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", output, folder=folder)


def _run(source: Source, *command: str | Path, folder: Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=folder, env=_environment(source), check=False)
    if done.returncode != 0:
        raise Refused(f"failed with exit code {done.returncode}: {' '.join(str(part) for part in command[:4])} …")


def _environment(source: Source) -> Mapping[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch), "PYTHONDONTWRITEBYTECODE": "1"}


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(f"git cannot be run: {error}") from error
    if done.returncode != 0:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Refused(f"{folder} has {len(found)} files like {pattern}, not one")
    return found[0]


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
