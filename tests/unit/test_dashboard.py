"""The dashboards equal the output of their code, and they and the rules of Prometheus query existing metrics."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from deploy.promql import Selector, functions_of, groupings, parts_with_data, selectors
from deploy.watching import (
    DASHBOARDS,
    Panel,
    annotations,
    filled,
    panels,
    read_dashboards,
    rules,
    variables,
)

from ingest.domain.deliveries.queue_state import Lane, QueueState
from ingest.domain.operating.source_state import Reason, State
from ingest.domain.webhook_result import WebhookResult
from ingest.telemetry.api_metrics import CODES, ApiSeries
from ingest.telemetry.collectors import ObservedQueue, QueueCollector
from ingest.telemetry.metrics import LOOP_LAG, WORKER_METRICS

BOARDS = read_dashboards()
HEADINGS_AND_PANELS = {name: panels(board) for name, board in BOARDS.items()}
PANELS = {name: [panel for panel in found if panel.kind != "row"] for name, found in HEADINGS_AND_PANELS.items()}
ALL_PANELS = [(name, panel) for name, found in PANELS.items() for panel in found]
CODE = DASHBOARDS.parent

# Their own variables stay as they are: PromQL takes them for text.
AS_THEY_ARE = {name: f"${name}" for board in BOARDS.values() for name in variables(board)}
QUERIES = {
    **{
        f"{board}: panel {panel.title}, {target.ref}": filled(target.expr, AS_THEY_ARE)
        for board, panel in ALL_PANELS
        for target in panel.targets
    },
    **{
        f"{name}: annotation {annotation}": filled(expr, AS_THEY_ARE)
        for name, board in BOARDS.items()
        for annotation, expr in annotations(board).items()
    },
    **{
        f"{name}: variable {variable}": series
        for name, board in BOARDS.items()
        for variable, (series, _) in variables(board).items()
    },
}
RULES = [(name, rule["expr"]) for name, rule in rules()]

# What Prometheus itself puts on every series.
ON_ALL = {"job", "instance"}
METRICS = {
    spec.name: spec
    for spec in (*WORKER_METRICS.values(), *ApiSeries([("/v1/orders", "POST")], ["api"], 1, {"shop": ""}).specs)
}
LABELS = {spec.label for spec in METRICS.values() if spec.label and "," not in spec.label}
VALUES = {
    label: {value for spec in METRICS.values() if spec.label == label for value in spec.values} for label in LABELS
}
VALUES["lane"] = set(Lane)
VALUES["code"] |= set(CODES)
VALUES["result"] = set(WebhookResult)


@cache
def metrics() -> dict[str, set[str]]:
    """Every series that can be queried, with its labels."""
    known = {"up": ON_ALL, "ALERTS": ON_ALL | {"alertname", "alertstate", "severity", "source", "stream"}}
    for spec in METRICS.values():
        labels = ON_ALL | set(spec.labels)
        if spec.kind == "histogram":
            known |= {f"{spec.name}_bucket": labels | {"le"}, f"{spec.name}_count": labels, f"{spec.name}_sum": labels}
        else:
            known[spec.name] = labels
    for gauge in QueueCollector(
        [
            ObservedQueue(
                "",
                "x",
                QueueState(),
                {"0": QueueState()},
                {"0": "a:1"},
                is_paused=False,
                troubles={("0", "slow"): "a:1"},
                reasons=[Reason(State.THROTTLED, "HTTP 429")],
            )
        ]
    ).collect():
        known[gauge.name] = ON_ALL | gauge.samples[0].labels.keys()
    for _, rule in rules():
        if "record" in rule:
            # level:metric:operations, where the level is the labels that are left.
            known[rule["record"]] = set(rule["record"].partition(":")[0].split("_"))
    return known


@cache
def counted() -> set[str]:
    """What only ever grows."""
    histograms = [spec.name for spec in METRICS.values() if spec.kind == "histogram"]
    return {spec.name for spec in METRICS.values() if spec.kind == "counter"} | {
        f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")
    }


def run(code: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(code / "generate.py"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_file_is_what_the_code_makes() -> None:
    checked = run(CODE, "--check")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_file_that_is_not_current_is_told_of_with_the_way_to_make_it_anew(tmp_path: Path) -> None:
    code = shutil.copytree(CODE, tmp_path / "grafana")
    dashboard_file = code / "dashboards" / "overview.json"
    dashboard_file.write_text(
        dashboard_file.read_text(encoding="utf-8").replace("Dead letters", "Deaf letters"), encoding="utf-8"
    )

    stale = run(code, "--check")
    made = run(code)
    current = run(code, "--check")

    assert stale.returncode == 1
    assert stale.stderr.startswith("overview.json: ")
    assert "make dashboards" in stale.stderr
    assert stale.stderr.count("\n") == 1
    assert (made.returncode, current.returncode) == (0, 0)
    assert dashboard_file.read_bytes() == (DASHBOARDS / "overview.json").read_bytes()


@pytest.mark.parametrize(("where", "query"), [*QUERIES.items(), *RULES])
def test_every_query_asks_for_metrics_labels_and_values_that_there_are(where: str, query: str) -> None:
    known = metrics()

    for selector in selectors(query):
        assert selector.metric in known, where
        assert selector.matchers.keys() <= known[selector.metric], where
        for label, (operator, value) in selector.matchers.items():
            if label in VALUES:
                asked_for = value.split("|") if operator in {"=~", "!~"} else [value]
                assert set(asked_for) <= set(VALUES[label]), where
    for labels, grouped in groupings(query):
        assert labels <= set.union(*(known[metric] for metric in grouped)), where


# The values of a variable are labels, of whatever series.
COMPUTED = [(where, query) for where, query in QUERIES.items() if ": variable" not in where]


@pytest.mark.parametrize(("where", "query"), [*COMPUTED, *RULES])
def test_counters_are_asked_for_as_rates_and_nothing_else_is(where: str, query: str) -> None:
    rates = {"rate", "increase", "resets"}

    for metric in {selector.metric for selector in selectors(query)}:
        applied = {function for name, function in functions_of(query) if name == metric}
        if metric in counted():
            assert applied, where
            assert applied <= rates, where
        else:
            assert not applied & rates, where


def test_every_query_of_a_panel_is_restricted_to_what_is_chosen_above() -> None:
    for where, query in QUERIES.items():
        if ": panel" in where:
            for selector in selectors(query):
                assert is_restricted(selector), where


def is_restricted(selector: Selector) -> bool:
    """Limited to the chosen sources, and to the chosen workers unless it is a gauge of a queue, which is the same on all workers."""
    matchers, labels = selector.matchers, metrics()[selector.metric]
    of_sources = matchers.get("source") == ("=~", "$source")
    of_workers = matchers.get("instance") == ("=~", "$instance")  # or of the API
    return (
        matchers.get("job") == ("=~", "$job")
        and of_sources == ("source" in labels)
        and of_workers == ("stream" not in labels)
    )


@pytest.mark.parametrize("name", BOARDS)
def test_everything_comes_from_the_data_source_that_is_chosen(name: str) -> None:
    board = BOARDS[name]
    chosen, *others = board["templating"]["list"]
    used = [
        *(panel.datasource for panel in PANELS[name]),
        *(target.datasource for panel in PANELS[name] for target in panel.targets),
        *(variable["datasource"]["uid"] for variable in others),
        *(annotation["datasource"]["uid"] for annotation in board["annotations"]["list"]),
    ]

    assert (chosen["name"], chosen["query"], chosen["current"]["value"]) == ("datasource", "prometheus", "prometheus")
    assert set(used) == {"${datasource}"}
    assert "uid: prometheus\n" in (CODE / "provisioning" / "datasources" / "prometheus.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("panel", [panel for _, panel in ALL_PANELS], ids=lambda panel: panel.title)
def test_every_panel_says_what_it_shows_and_in_what_unit(panel: Panel) -> None:
    assert panel.title
    assert panel.description.endswith(".")
    assert panel.unit
    assert panel.targets
    assert all(target.legend for target in panel.targets)


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_numbers_and_places_of_their_own(name: str) -> None:
    found = HEADINGS_AND_PANELS[name]
    numbers = [panel.number for panel in found]

    assert len(set(numbers)) == len(numbers)
    assert all(0 <= panel.place.x <= 24 - panel.place.width for panel in found)
    for one, other in combinations(found, 2):
        assert not one.place.overlaps(other.place), (one.title, other.title)


def test_legends_are_made_of_labels_that_the_queries_leave() -> None:
    for _, panel in ALL_PANELS:
        for target in panel.targets:
            names = set(re.findall(r"{{(\w+)}}", target.legend))
            left = groupings(filled(target.expr, AS_THEY_ARE))
            assert all(names <= labels for labels, _ in left[:1]), panel.title


def test_no_exporter_is_counted_as_a_worker() -> None:
    (workers,) = (panel for panel in PANELS["overview"] if panel.title == "Workers")
    up = next(target for target in workers.targets if target.legend == "up")

    (asked,) = selectors(filled(up.expr, AS_THEY_ARE))

    assert asked.metric in {spec.name for spec in WORKER_METRICS.values() if spec is not LOOP_LAG}


def test_colours_name_series_that_there_can_be() -> None:
    for _, panel in ALL_PANELS:
        fixed = {target.legend for target in panel.targets}
        by_label = {
            value for legend in fixed for label in re.findall(r"{{(\w+)}}", legend) for value in VALUES.get(label, ())
        }
        assert panel.overrides.keys() <= fixed | by_label, panel.title


@pytest.mark.parametrize(
    ("title", "metric"),
    [
        ("Oldest unfinished order", "job_source_stream:ingest_queue_oldest_age_seconds:max"),
        ("Age of the oldest unfinished order", "job_source_stream:ingest_queue_oldest_age_seconds:max"),
        ("Restarts within 15 minutes", "job_instance:ingest_restarts:increase15m"),
    ],
)
def test_levels_are_where_alerts_begin(title: str, metric: str) -> None:
    (panel,) = (panel for panel in PANELS["overview"] if panel.title == title)
    steps = panel.defaults["thresholds"]["steps"]
    levels = {step["color"]: step["value"] for step in steps if step["value"] is not None}

    assert levels == {{"warning": "orange", "critical": "red"}[severity]: at for severity, at in limits(metric).items()}


def limits(metric: str) -> Mapping[str, float]:
    """From where on alerts fire that compare this metric with a number, by severity."""
    comparison = re.compile(rf"{re.escape(metric)} >=? (\d+)")
    return {
        rule["labels"]["severity"]: float(found[1])
        for _, rule in rules()
        if "alert" in rule and (found := comparison.fullmatch(rule["expr"]))
    }


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("sum(rate(a_total[5m])) / sum(rate(b_total[5m]))", ["sum(rate(a_total[5m])) / sum(rate(b_total[5m]))"]),
        ("a > 5", ["a"]),
        ("a > bool 5", ["a > bool 5"]),
        ("a / b > 0.5 and on (job) c == 0", ["a / b", "c"]),
        ("a / (b > 0)", ["a", "b"]),
        ("count by (job) (a unless on (job) b)", ["a", "b"]),
        ("a + b or b", ["a + b", "b"]),
        ('absent(up{job="ingest"})', ['up{job="ingest"}']),
        ("absent_over_time(a[5m])", ["count_over_time(a[5m])"]),
        ("10 * count_over_time((a > 0)[10m:10s]) > 300", ["a"]),
        ("a - a offset 15m > 0", ["a - a"]),
    ],
)
def test_the_parts_of_an_alert_that_must_find_something_are_what_it_compares(query: str, parts: list[str]) -> None:
    assert parts_with_data(query) == parts
