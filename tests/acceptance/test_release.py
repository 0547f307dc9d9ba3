"""`make release` on a small separate checkout: reproducible builds, and messages if it cannot build."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ["pyproject.toml", "README.md", "LICENSE", "Makefile", "Dockerfile", "requirements.lock"]
CHANGELOG = "# Changes\n\n## [Unreleased]\n\n## [9.8.7] - 2026-11-22\n\n### Added\n\n- Everything.\n"
# No engine responds there on any machine.
ENVIRONMENT = {**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
WHO = {"GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000", "GIT_CONFIG_GLOBAL": os.devnull}
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *IDENTITY, *arguments], cwd=root, env={**os.environ, **WHO}, check=True, capture_output=True)


def checkout(root: Path) -> Path:
    """A repository with the service without its sample orders, at a tag."""
    root.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, root)
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    (root / "pyproject.toml").write_text(project.replace('\nversion = "', '\nversion = "9.8.7"  # "', 1))
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    (root / ".gitignore").write_text("dist/\n__pycache__/\n")
    shutil.copytree(
        ROOT / "ingest" / "domain", root / "ingest" / "domain", ignore=shutil.ignore_patterns("__pycache__")
    )
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "Release 9.8.7")
    git(root, "tag", "v9.8.7")
    return root


def release(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "deploy" / "release" / "release.py"), "--root", str(root), *options]
    return subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_release_is_complete_and_the_same_bytes_wherever_it_is_built(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one"), checkout(tmp_path / "two")

    done = release(one, "--tag", "v9.8.7", "--keep")
    assert done.returncode == 0, done.stderr
    assert release(two, "--no-image").returncode == 0

    dist = one / "dist"
    assert sorted(file.name for file in dist.iterdir()) == [
        "RELEASE_NOTES.md",
        "SHA256SUMS",
        "order-ingest-9.8.7.cdx.json",
        "order_ingest-9.8.7-py3-none-any.whl",
        "order_ingest-9.8.7.tar.gz",
    ]
    assert (dist / "SHA256SUMS").read_text() == (two / "dist" / "SHA256SUMS").read_text()
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    assert (dist / "RELEASE_NOTES.md").read_text() == "### Added\n\n- Everything.\n"
    assert "skipped: the image (no Docker engine responds)" in done.stdout
    with tarfile.open(dist / "order_ingest-9.8.7.tar.gz") as sdist:
        assert {"order_ingest-9.8.7/CHANGELOG.md", "order_ingest-9.8.7/requirements.lock"} <= set(sdist.getnames())
    with zipfile.ZipFile(dist / "order_ingest-9.8.7-py3-none-any.whl") as wheel:
        assert "ingest/domain/orders/order.py" in wheel.namelist()
    bill = json.loads((dist / "order-ingest-9.8.7.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"] == "9.8.7"
    assert {"aiohttp", "asyncpg", "redis"} <= {component["name"] for component in bill["components"]}
    assert [file.name for file in (one / "tests" / "releases").iterdir()] == ["order_ingest-9.8.7.tar.xz"]


def test_a_disagreement_is_reported_line_by_line_before_anything_is_built(tmp_path: Path) -> None:
    root = checkout(tmp_path / "checkout")
    (root / "new.txt").write_text("")

    refused = release(root, "--tag", "v1.0.0")

    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "release: the tag is v1.0.0, but version 9.8.7 of pyproject.toml needs the tag v9.8.7",
        "release: 1 files differ from the commit: ?? new.txt, …",
    ]
    assert not (root / "dist").exists()


def test_a_changelog_is_dated_once(tmp_path: Path) -> None:
    root = checkout(tmp_path / "checkout")
    (root / "CHANGELOG.md").write_text("# Changes\n\n## [Unreleased]\n\n- Everything.\n")

    first, second = release(root, "--prepare"), release(root, "--prepare")

    assert (first.returncode, second.returncode) == (0, 1), first.stderr
    assert "## [Unreleased]\n\n## [9.8.7] - 20" in (root / "CHANGELOG.md").read_text()
    assert "already contains version 9.8.7" in second.stderr
