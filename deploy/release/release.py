"""`make release` checks that tag, version and changelog agree, then builds the files of a release into dist/.

The wheel is built from the sdist, which proves that the sdist is complete. The same commit and tools result in the same bytes
of the sdist, the wheel and the bill of materials. The workflow .github/workflows/release.yml publishes them.
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
    """The release cannot be built. The message contains one line per problem."""


@dataclass(frozen=True, slots=True)
class Source:
    """The commit of this project that is built.

    Attributes:
        root: the folder of the checkout.
        version: the version in pyproject.toml.
        changelog: the text of CHANGELOG.md.
        revision: the commit.
        epoch: the time of the commit, in Unix seconds.
        tags: the tags of the commit.
        changed: the files that differ from the commit.
    """

    root: Path
    version: str
    changelog: str
    revision: str
    epoch: int
    tags: Sequence[str]
    changed: Sequence[str]


def source_in(root: Path) -> Source:
    """Read the state of a checkout."""
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
    """One line for each reason against a release. `tag` is the tag to build, if the caller knows it."""
    expected = f"v{source.version}"
    found = changelog.disagreements(source.version, source.changelog)
    if tag is not None and tag != expected:
        found.append(f"the tag is {tag}, but version {source.version} of pyproject.toml needs the tag {expected}")
    if expected not in source.tags:
        found.append(
            f"the commit has no tag {expected}; run `git tag {expected}`, or add ARGS=--rehearse to build without a tag"
        )
    if source.changed:
        found.append(f"{len(source.changed)} files differ from the commit: {source.changed[0].strip()}, …")
    return found + kept_release_problems(source)


def refuse(found: Sequence[str]) -> None:
    """Raise all problems together.

    Raises:
        Refused: if there are problems.
    """
    if found:
        raise Refused("\n".join(found))


def kept_release_problems(source: Source) -> list[str]:
    """The tests of two releases need the previous release."""
    earlier = [section.name for section in changelog.released(source.changelog) if section.name != source.version]
    kept = sorted(path.name for path in (source.root / KEPT).glob("*.tar.xz"))
    if not earlier or kept == [kept_name(earlier[0])]:
        return []
    contained = ", ".join(kept) or "no archive"
    return [f"{KEPT} must contain only the previous release, {kept_name(earlier[0])}, but contains {contained}"]


def build(source: Source, output: Path, image: str | None, build_options: Sequence[str] = ()) -> list[str]:
    """Build all files. Return one line for each skipped part, with the reason."""
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
        return ["the image (--no-image)"]
    if not has_docker():
        return ["the image (no Docker engine responds)"]
    build_image(source, image, build_options)
    return []


def build_sdist(source: Source, output: Path) -> Path:
    """Build the source distribution."""
    _hatchling(source, source.root, "sdist", output)
    return _only(output, "order_ingest-*.tar.gz")


def build_wheel(source: Source, sdist: Path, output: Path) -> Path:
    """Build the wheel from the source distribution."""
    with tempfile.TemporaryDirectory(prefix="ingest-release-") as folder:
        with tarfile.open(sdist) as archive:
            # Python 3.11.2 of Debian 12 does not support filters, and the archive is our own.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(folder)  # noqa: S202
        _hatchling(source, _only(Path(folder), "order_ingest-*"), "wheel", output)
    return _only(output, "order_ingest-*.whl")


def build_bill(source: Source, output: Path) -> Path:
    """Write the bill of materials (CycloneDX) of the image, which contains the service and its locked packages."""
    bill = output / f"order-ingest-{source.version}.cdx.json"
    # A private package index must not appear in it.
    _run(
        source,
        # It warns that the lock contains no dependencies between packages.
        sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements", "requirements.lock",
        "--index-url", "https://pypi.org/simple", "--short-PURLs",
        "--pyproject", "pyproject.toml", "--mc-type", "application",
        "--output-reproducible", "--validate", "--output-file", bill,
        folder=source.root,
    )  # fmt: skip
    named = json.loads(bill.read_text())["metadata"]["component"]
    if (named["name"], named["version"]) != ("order-ingest", source.version):
        raise Refused(f"the bill of materials describes {named['name']} {named['version']}")
    return bill


def image_tags(image: str, version: str) -> list[str]:
    """The names of the image. A release candidate gets only its own version."""
    if not re.fullmatch(r"[\d.]+", version):
        return [f"{image}:{version}"]
    major, minor, _ = version.split(".")
    return [f"{image}:{name}" for name in (version, f"{major}.{minor}", "latest")]


def has_docker() -> bool:
    """Whether a Docker engine responds."""
    try:
        asked = subprocess.run(["docker", "version"], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def build_image(source: Source, image: str, build_options: Sequence[str]) -> None:
    """Build the image with all its names."""
    tags = [part for name in image_tags(image, source.version) for part in ("--tag", name)]
    labels = {"version": source.version, "revision": source.revision}
    labelled = [
        part for name, value in labels.items() for part in ("--label", f"org.opencontainers.image.{name}={value}")
    ]
    _run(source, "docker", "build", *tags, *labelled, *build_options, ".", folder=source.root)


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    try:
        source = source_in(options.root)
        if options.prepare:
            text = changelog.prepared(source.version, source.changelog, datetime.now(UTC).date())
            (options.root / "CHANGELOG.md").write_text(text, encoding="utf-8")
            _say(
                f"CHANGELOG.md: the unreleased changes are version {source.version} now. Commit, and tag v{source.version}."
            )
            return 0
        if not options.rehearse:
            refuse(problems(source, options.tag))
        output = options.root / "dist"
        left_out = build(source, output, None if options.no_image else options.image, options.build_option)
        if options.keep:
            kept = keep(_only(output, "order_ingest-*.whl"), source.version, options.root / KEPT)
            _say(f"{KEPT}/{kept.name}: commit this file for the tests of the next release")
    except (Refused, ValueError) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"release: {line}\n")
        return 1
    for file in sorted(output.iterdir()):
        _say(f"dist/{file.name}  {file.stat().st_size:,} bytes")
    for line in left_out:
        _say(f"skipped: {line}")
    _say(f"{'rehearsed' if options.rehearse else 'built'} {source.version} of {source.revision}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make release", description="Build a release into dist/.")
    parser.add_argument("--tag", help="fail if the version needs another tag than this (default: a tag of the commit)")
    parser.add_argument("--rehearse", action="store_true", help="build without a tag and without checks")
    parser.add_argument(
        "--prepare", action="store_true", help="only turn the unreleased changes of the changelog into a dated version"
    )
    parser.add_argument(
        "--keep", action="store_true", help=f"store the release in {KEPT} for the tests of the next one"
    )
    parser.add_argument("--no-image", action="store_true", help="build no image")
    parser.add_argument("--image", default=_IMAGE, help="the image's name (default: %(default)s)")
    parser.add_argument(
        "--build-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="pass an option to `docker build`, such as --build-option=--network=host",
    )
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
        raise Refused(f"cannot run git: {error}") from error
    if done.returncode != 0:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Refused(f"{folder} contains {len(found)} files like {pattern} instead of one")
    return found[0]


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
