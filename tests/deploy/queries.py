"""Checks that each query of the dashboards and of Prometheus' rules returns a result from a real Prometheus.

    cd tests && python -m deploy.queries http://127.0.0.1:9090 --plots /tmp/plots

A query with a typing mistake returns no result, like an alert while all is well. Therefore, the service must have
stored orders within the last ten minutes, and ideally have seen some faults. With `--plots`, the panels are drawn like
on the dashboards into `overview.png` and `http-api.png` for a visual check.
"""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from deploy.plots import draw
from deploy.promql import parts_with_data
from deploy.watching import Answer, Panel, Series, annotations, filled, panels, read_dashboards, rules, variables

# The time in which something has happened, and how often the dashboard's data source expects a scrape (seconds).
_WINDOW = 600
_STEP = 10
_ANSWER_WITHIN = 30.0

_LEGEND_LABEL = re.compile(r"{{\s*(\w+)\s*}}")
# In the description of a panel.
_MAY_BE_EMPTY = "Without data, no "
# Rules about failed requests and about webhooks, of which a system in order may have none. Their unit tests have.
_NEED_TROUBLE = (
    "job:ingest_api_requests_failed:ratio_rate5m",
    "IngestApiErrors",
    "IngestWebhookSignatures",
    "IngestWebhooksRejected",
    "IngestTotalDifferences",
    # Only for a queue with several partitions.
    "job_source_partition:ingest_partition_depth:max",
    "IngestPartitionStuck",
    # A source has a state of trouble only while there is a cause.
    "IngestSourceCannotWork",
    "IngestThrottled",
)


class QueryRefused(Exception):
    """Prometheus takes the query to be wrong, or cannot be reached."""


def check(prometheus_url: str, plots: Path | None = None) -> list[str]:
    """Run all queries, and draw the panels into the folder `plots`, if given.

    Returns:
        One line for each query that is rejected or returns no number, or an empty list if all is well.
    """
    prometheus = Prometheus(prometheus_url, time.time())
    complaints: list[str] = []
    for name, dashboard in read_dashboards().items():
        questions = Questions(prometheus)
        questions.ask_for_variables(dashboard)
        answered = [(panel, questions.ask_panel(panel)) for panel in panels(dashboard)]
        questions.ask_annotations(dashboard)
        complaints += [f"{name}: {complaint}" for complaint in questions.complaints]
        if plots:
            plots.mkdir(parents=True, exist_ok=True)
            draw(plots / f"{name}.png", dashboard["title"], answered, prometheus.times)
    questions = Questions(prometheus)
    for name, rule in rules():
        questions.ask_rule(name, rule)
    return complaints + questions.complaints


class Questions:
    """Queries Prometheus and records errors."""

    def __init__(self, prometheus: "Prometheus") -> None:
        self._prometheus = prometheus
        self._values: dict[str, str] = {}
        self.complaints: list[str] = []

    def ask_for_variables(self, dashboard: Mapping[str, Any]) -> None:
        """Find the values of all variables. Each can use the previous ones."""
        several = {variable["name"] for variable in dashboard["templating"]["list"] if variable.get("multi")}
        # For all of a variable's values, even if there are none.
        of_all = {each["name"]: each["allValue"] for each in dashboard["templating"]["list"] if each.get("allValue")}
        for name, (series, label) in variables(dashboard).items():
            found: list[str] = []
            try:
                found = self._prometheus.label_values(filled(series, self._values), label)
            except QueryRefused as refusal:
                self.complaints.append(f"variable {name}: {refusal}: {series}")
            else:
                if name in of_all:
                    self._values[name] = of_all[name]
                    continue
                if not found:
                    self.complaints.append(f"variable {name}: has no values: {series}")
            # For several, a regular expression, in a string of PromQL.
            escaped = [re.escape(value).replace("\\", "\\\\") for value in found]
            self._values[name] = f"({'|'.join(escaped)})" if name in several else next(iter(found), "")

    def ask_panel(self, panel: Panel) -> list[Answer]:
        """The results of its queries."""
        answers = []
        for target in panel.targets:
            where = f"panel {panel.title!r}, query {target.ref}"
            expr = filled(target.expr, self._values)
            # An optional part may return no result, but no error either.
            is_optional = _MAY_BE_EMPTY in panel.description
            series = (self._ask(where, expr) or []) if is_optional else self._ask_for_data(where, expr)
            missing = {
                label for label in _LEGEND_LABEL.findall(target.legend) for each in series if label not in each.labels
            }
            if missing:
                self.complaints.append(f"{where}: no label {', '.join(sorted(missing))} for the legend: {target.expr}")
            answers.append(Answer(target, series))
        return answers

    def ask_annotations(self, dashboard: Mapping[str, Any]) -> None:
        """Results cannot be required, because alerts do not have to fire."""
        for name, expr in annotations(dashboard).items():
            self._ask(f"annotation {name!r}", filled(expr, self._values))

    def ask_rule(self, name: str, rule: Mapping[str, Any]) -> None:
        """The query must not be an error, its parts must return results, and the recorded series must exist."""
        if self._ask(name, rule["expr"]) is None or name.endswith(_NEED_TROUBLE):
            return
        for part in parts_with_data(rule["expr"]):
            self._ask_for_data(f"{name}, a part", part)
        if "record" in rule:
            self._ask_for_data(f"{name}, recorded", rule["record"])

    def _ask_for_data(self, where: str, expr: str) -> list[Series]:
        found = self._ask(where, expr)
        if found is None:
            return []
        if not found:
            self.complaints.append(f"{where}: finds nothing: {expr}")
        elif not any(math.isfinite(value) for series in found for _, value in series.points):
            self.complaints.append(f"{where}: finds no number: {expr}")
        return found

    def _ask(self, where: str, expr: str) -> list[Series] | None:
        try:
            return self._prometheus.series(expr)
        except QueryRefused as refusal:
            self.complaints.append(f"{where}: {refusal}: {expr}")
            return None


class Prometheus:
    """The HTTP API of one Prometheus, for a time until `now` (Unix seconds)."""

    def __init__(self, url: str, now: float, window: int = _WINDOW, step: int = _STEP) -> None:
        self._url = url.rstrip("/")
        self._step = step
        end = int(now) // step * step
        self.times = range(end - window, end + 1, step)

    def series(self, expr: str) -> list[Series]:
        """The result of the query at each step.

        Raises:
            QueryRefused: with the reason.
        """
        data = self._get("/api/v1/query_range", {"query": expr, "step": self._step, **self._span})
        return [
            Series(found["metric"], tuple((float(at), float(value)) for at, value in found["values"]))
            for found in data["result"]
        ]

    def label_values(self, series: str, label: str) -> list[str]:
        """The values of a label on these series.

        Raises:
            QueryRefused: with the reason.
        """
        return sorted(self._get(f"/api/v1/label/{quote(label)}/values", {"match[]": series, **self._span}))

    @property
    def _span(self) -> dict[str, int]:
        return {"start": self.times[0], "end": self.times[-1]}

    def _get(self, path: str, parameters: Mapping[str, object]) -> Any:
        try:
            with urlopen(f"{self._url}{path}?{urlencode(parameters)}", timeout=_ANSWER_WITHIN) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise QueryRefused(_reason(error)) from error
        except (URLError, TimeoutError) as error:
            raise QueryRefused(f"{self._url} does not answer: {error}") from error


def _reason(error: HTTPError) -> str:
    body = error.read().decode(errors="replace")
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError):
        return f"{error.code} {error.reason}: {body[:200]}"


def main() -> int:
    """Run all queries and print errors."""
    parser = argparse.ArgumentParser(
        prog="deploy.queries", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="of Prometheus, such as http://127.0.0.1:9090")
    parser.add_argument("--plots", type=Path, help="a folder for overview.png and http-api.png")
    given = parser.parse_args()
    complaints = check(given.url, given.plots)
    sys.stdout.writelines(f"{complaint}\n" for complaint in complaints or ["every query finds something"])
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
