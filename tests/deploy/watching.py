"""Reads the dashboards with their panels, and the rules of Prometheus."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARDS = _DEPLOY / "grafana" / "dashboards"
RULES = _DEPLOY / "prometheus" / "rules"

# Variables that Grafana fills in. For a dashboard of the last hour, a rate is over a minute.
_BUILT_IN = {"__rate_interval": "1m", "__interval": "15s", "__range": "10m"}
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+),\s*(?P<label>\w+)\)")


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel.

    Attributes:
        ref: Grafana's letter for the query.
    """

    ref: str
    expr: str
    legend: str
    datasource: str


@dataclass(frozen=True, slots=True)
class Location:
    """Where a panel is, in the 24 columns of a dashboard."""

    x: int
    y: int
    width: int
    height: int

    def overlaps(self, other: "Location") -> bool:
        """Whether both want the same place."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel, or the heading of the panels below it (kind `row`).

    Attributes:
        defaults: the appearance of all series.
        overrides: the appearance of single series, by name.
    """

    number: int
    kind: str
    title: str
    description: str
    datasource: str
    place: Location
    targets: tuple[Target, ...]
    defaults: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, panel: Mapping[str, Any]) -> "Panel":
        """As Grafana reads it."""
        config, place = panel.get("fieldConfig", {}), panel["gridPos"]
        overrides: dict[str, dict[str, Any]] = {}
        for override in config.get("overrides", []):
            looks = overrides.setdefault(override["matcher"]["options"], {})
            looks.update({each["id"]: each["value"] for each in override["properties"]})
        return cls(
            number=panel["id"],
            kind=panel["type"],
            title=panel["title"],
            description=panel.get("description", ""),
            datasource=panel.get("datasource", {}).get("uid", ""),
            place=Location(place["x"], place["y"], place["w"], place["h"]),
            targets=tuple(
                Target(target["refId"], target["expr"], target["legendFormat"], target["datasource"]["uid"])
                for target in panel.get("targets", [])
            ),
            defaults=config.get("defaults", {}),
            overrides=overrides,
            options=panel.get("options", {}),
        )

    @property
    def unit(self) -> str:
        """The unit of all its values, or an empty text."""
        return str(self.defaults.get("unit", ""))


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a query over time (Unix seconds)."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The results of one query of a panel."""

    target: Target
    series: list[Series]


def read_dashboards() -> dict[str, dict[str, Any]]:
    """The committed dashboards by name, beginning with the overview."""
    files = sorted(DASHBOARDS.glob("*.json"), key=lambda file: (file.stem != "overview", file.stem))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def panels(dashboard: Mapping[str, Any]) -> list[Panel]:
    """The dashboard's panels and headings, from the top down."""
    return [Panel.of(panel) for panel in dashboard["panels"]]


def annotations(dashboard: Mapping[str, Any]) -> dict[str, str]:
    """The queries of the annotations on all graphs, by name."""
    return {annotation["name"]: annotation["target"]["expr"] for annotation in dashboard["annotations"]["list"]}


def variables(dashboard: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The variables with values from Prometheus by name, as the series and the label for the values."""
    found = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]["query"]
            label_values = _LABEL_VALUES.fullmatch(query)
            if not label_values:
                raise ValueError(f"variable {variable['name']} is not made of label_values(…): {query}")
            found[variable["name"]] = (label_values["series"], label_values["label"])
    return found


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every recording rule and alert, with its location."""
    for path in sorted(RULES.glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                yield f"{path.name}, {rule.get('record') or rule['alert']}", rule


def filled(expr: str, values: Mapping[str, str]) -> str:
    """The query with values for its variables, as Grafana sends it."""
    return _VARIABLE.sub(lambda variable: (_BUILT_IN | dict(values))[variable[1]], expr)
