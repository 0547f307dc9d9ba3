"""The service's image, built from the unmodified Dockerfile as its users build it."""

from __future__ import annotations

import configparser
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.machine import WORK
from deploy.shell import saying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.engine import Docker

# pip's settings for a package index. Other settings are about this machine.
_OF_THE_INDEX = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries"}
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True)
class Built:
    """The image, and a secret that must not be in it.

    Attributes:
        name: tag of the image.
        secret: a word in the pip.conf of the build.
    """

    name: str
    secret: str


def build(docker: Docker, tree: Path, name: str) -> Built:
    """Build the image of a tree, with this machine's settings of pip as the build's secret."""
    secret = secrets.token_hex(16)
    pip_conf = WORK / "pip.conf"
    settings = {**pip_settings(os.environ), "cert": _CERTIFICATES}
    lines = [f"{key} = {value}" for key, value in settings.items()]
    pip_conf.write_text("\n".join([f"# {secret}", "[global]", *lines, ""]))
    with saying("built the service's image"):
        docker("build", "--network", "host", "--secret", f"id=pip.conf,src={pip_conf}", "--tag", name, tree)
    return Built(name, secret)


def pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """This machine's settings for a package index, from pip's files and then the environment."""
    home = Path.home()
    files = ["/etc/pip.conf", str(home / ".pip/pip.conf"), str(home / ".config/pip/pip.conf")]
    files.append(environment.get("PIP_CONFIG_FILE", ""))
    parser = configparser.RawConfigParser()
    parser.read(path for path in files if path)
    found = {
        key.replace("_", "-"): value for section in ("global", "install") for key, value in _items(parser, section)
    }
    for name, value in environment.items():
        if name.startswith("PIP_"):
            found[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return {key: value.replace("\n", "\n  ") for key, value in found.items() if key in _OF_THE_INDEX}


def _items(parser: configparser.RawConfigParser, section: str) -> list[tuple[str, str]]:
    return parser.items(section) if parser.has_section(section) else []
