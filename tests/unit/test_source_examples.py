"""The sources files in deploy/ that users copy can be used as they are, and the groups of sources on Kubernetes fit together."""

import os
import re
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest.settings import load_settings
from ingest.settings.source_file import source_names, source_settings
from ingest.sources.from_settings import source_of

DEPLOY = Path(__file__).parents[2] / "deploy"
GROUPS = DEPLOY / "kubernetes" / "overlays" / "source-groups"
GUIDED = [
    "README.md",
    "docs/start/laptop-to-production.md",
    "docs/start/three-shops.md",
    "docs/connect/several-shops.md",
]
FILES = [DEPLOY / "sources" / "sources.toml", DEPLOY / "kubernetes" / "components" / "sources" / "sources.toml"]


def patches(folder: Path) -> list[Any]:
    """The patches of a kustomization, as lists of operations or as parts of resources."""
    found = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["patches"]
    return [yaml.safe_load(each["patch"]) for each in found]


def values(folder: Path, path: str) -> list[Any]:
    """The values that the operations of a kustomization set at this path."""
    operations = [each for patch in patches(folder) if isinstance(patch, list) for each in patch]
    return [each["value"] for each in operations if each["path"] == path]


def arguments(folder: Path) -> list[str]:
    """The sources that a Deployment names."""
    [given] = values(folder, "/spec/template/spec/containers/0/args")
    return [name for option, name in pairwise(given) if option == "--source"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_an_example_can_be_used_with_its_secrets(file: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file.read_text(encoding="utf-8")
    for path in re.findall(r'"/(run/secrets/[a-z/-]+)"', text):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("s3cret")
    (home / "sources.toml").write_text(text.replace('"/run/', '"run/'))
    monkeypatch.setenv("INGEST_SOURCES", "sources.toml")

    settings = source_settings(load_settings())

    sources = {name: source_of(each, os.environ) for name, each in settings.items()}
    assert all(source.has_quota for source in sources.values())
    assert sources["shop-de"].mapping is not None


@pytest.mark.parametrize("page", GUIDED)
def test_a_guided_page_describes_a_shop_by_its_kind(page: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DEPLOY.parent / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```|<<'TOML'\n(\[sources.*?)\nTOML\n", text, re.DOTALL)
    examples = "\n".join(filter(None, chain(*blocks))).replace('"/run/', '"run/')
    for path in re.findall(r'"((?:run/)?secrets/[a-z/-]+)"', examples):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text("s3cret")
    (home / "sources.toml").write_text(examples)
    monkeypatch.setenv("INGEST_SOURCES", "sources.toml")

    settings = source_settings(load_settings())

    assert settings["shop-de"].mapping == "shopify-graphql"
    assert "shopify-rest" not in text


@pytest.mark.usefixtures("home")
def test_each_source_is_in_one_group_whose_autoscaler_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_SOURCES", str(FILES[1]))

    groups = [arguments(GROUPS), arguments(GROUPS / "marketplaces")]

    assert sorted(chain(*groups)) == sorted(source_names(load_settings()))
    for folder, names in zip((GROUPS, GROUPS / "marketplaces"), groups, strict=True):
        [query] = values(folder, "/spec/triggers/0/metadata/query")
        assert re.findall(r'source=~?"([^"]*)"', query) == ["|".join(names)] * 2


def test_each_group_has_the_credentials_of_its_sources_only() -> None:
    volumes = [
        [item["key"] for item in volume["secret"]["items"]]
        for patch in patches(GROUPS)
        if isinstance(patch, dict)
        for volume in patch["spec"]["template"]["spec"]["volumes"]
    ]

    assert volumes == [arguments(GROUPS), arguments(GROUPS / "marketplaces")]
