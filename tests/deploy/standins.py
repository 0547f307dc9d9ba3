"""Stand-ins for the base images, made of Debian's packages of the same programs.

Debian 13 contains Python, Redis and PostgreSQL in the images' versions. Its Prometheus is older (2.53), so that queries
must work in both versions. Debian does not contain Grafana.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.machine import WORK
from deploy.shell import run, saying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.engine import Docker

PYTHON = "python:3.13-slim"
COMPOSE = WORK / "servers/usr/libexec/docker/cli-plugins/docker-compose"

_SUITE = "trixie"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON_PACKAGES = ("python3", "python3-venv", "ca-certificates", "tzdata", "netbase")
_SERVER_PACKAGES = (
    *("base-files", "base-passwd", "coreutils", "dash", "grep", "sed", "libc-bin", "tzdata", "util-linux"),
    *("redis-server", "postgresql-17", "prometheus", "prometheus-alertmanager", "docker-compose"),
)
# PostgreSQL does not need LLVM (150 MB), which compiles queries at run time.
_LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/libexec", "*libLLVM*", "*llvmjit*")
_IMAGES = Path(__file__).parent / "images"


def make_python() -> None:
    """The base image's files: Python 3.13 with venv, and the certificates that this machine trusts."""
    (WORK / "certificates.crt").write_bytes(_trusted().read_bytes())
    with saying("made the stand-in for Python's image"):
        _mmdebstrap(
            "--variant=minbase",
            f"--include={','.join(_PYTHON_PACKAGES)}",
            '--customize-hook=ln -s ../../bin/python3 "$1/usr/local/bin/python"',
            f"--customize-hook=upload {WORK / 'certificates.crt'} {_CERTIFICATES}",
            target=WORK / "python.tar",
        )


def make_servers() -> None:
    """The servers' files and Compose, which are unpacked instead of installed because that is faster."""
    with saying("made the stand-ins for the servers' images"):
        _mmdebstrap("--variant=extract", f"--include={','.join(_SERVER_PACKAGES)}", target=WORK / "servers")


def import_python(docker: Docker) -> None:
    """Give the engine the base image."""
    docker("import", "--change", f"ENV {_PATH}", "--change", 'CMD ["python3"]', WORK / "python.tar", PYTHON)


def import_servers(docker: Docker, names: Mapping[str, str]) -> None:
    """Give the engine the servers' images, under their `names` by service."""
    archive = WORK / "servers.tar"
    run("tar", "-C", WORK / "servers", *(f"--exclude=./{path}" for path in _LEFT_OUT), "-cf", archive, ".")
    docker("import", "--change", f"ENV {_PATH}", archive, f"servers:{_SUITE}")
    archive.unlink()
    for service, name in names.items():
        docker("build", "--quiet", "--network", "host", "--target", service, "--tag", name, _IMAGES)


def _mmdebstrap(*options: str, target: Path) -> None:
    # The temporary folder is where it works until the target is whole.
    always = ("--quiet", "--mode=root", "--dpkgopt=force-unsafe-io")
    run("mmdebstrap", *always, *options, _SUITE, target, *_mirror(), env={**os.environ, "TMPDIR": str(WORK)})


def _mirror() -> list[str]:
    """The source of this machine's Debian packages, or an empty text for the default of mmdebstrap."""
    formatted = "$(REPO_URI) $(CODENAME)"
    targets = run("apt-get", "indextargets", "--format", formatted, "Created-By: Packages", "Component: main")
    release = run("sh", "-c", '. /etc/os-release && echo "$VERSION_CODENAME"').strip()
    mirrors = [uri for uri, _, suite in (line.partition(" ") for line in targets.splitlines()) if suite == release]
    return mirrors[:1]


def _trusted() -> Path:
    for name in ("PIP_CERT", "SSL_CERT_FILE"):
        if (path := os.environ.get(name)) and Path(path).is_file():
            return Path(path)
    return _CERTIFICATES


def forget_files() -> None:
    """Remove the files of finished images, but keep Compose."""
    (WORK / "python.tar").unlink()
    kept = WORK / "servers/usr/libexec"
    for folder in (WORK / "servers").iterdir():
        if not kept.is_relative_to(folder) and not folder.is_symlink():
            shutil.rmtree(folder)
