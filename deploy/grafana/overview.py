"""Generates the Grafana dashboard of the service, `dashboards/overview.json`.

    python deploy/grafana/overview.py            write the file
    python deploy/grafana/overview.py --check    fail unless the file is current

`sections.py` has the panels, `look.py` their appearance.
"""

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from look import BAD, DATASOURCE
from sections import SECTIONS

_FILE = Path(__file__).parent / "dashboards" / "overview.json"


class _Alerts(models.AnnotationQuery):
    """Marks the times at which alerts were firing. The SDK has no type for annotations of Prometheus."""

    def to_json(self) -> dict[str, object]:
        """The form that Grafana 12 reads."""
        return super().to_json() | {
            "target": {"expr": self.expr, "interval": "10s", "refId": "Anno"},
            "titleFormat": "{{alertname}}",
            "textFormat": "{{severity}} {{stream}} {{instance}}",
            "tagKeys": "severity",
        }


def build() -> models.Dashboard:
    """The whole dashboard."""
    dashboard = (
        Dashboard("Order ingestion")
        .uid("ingest-overview")
        .description("Orders from the queue through the external API into PostgreSQL, and what slows them down.")
        .tags(["order-ingest"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(_datasource_variable())
        .with_variable(_variable("stream", "Queue", "ingest_queue_pending", "stream"))
        # As a rule, the workers of one queue are one job of Prometheus. The job also selects targets that have never answered.
        .with_variable(
            _several(_variable("job", "Job", 'ingest_queue_pending{stream="$stream"}', "job")).hide(
                models.VariableHide.HIDE_VARIABLE
            )
        )
        .with_variable(_several(_variable("instance", "Worker", 'up{job=~"$job"}', "instance")))
    )
    # Without numbers of our own, those of all later panels would change with each panel that is inserted.
    for hundreds, section in enumerate((section() for section in SECTIONS), 1):
        dashboard.with_row(Row(section.title).id(100 * hundreds))
        for position, panel in enumerate(section.panels, 1):
            dashboard.with_panel(panel.id(100 * hundreds + position))
    built = dashboard.build()
    built.annotations = models.AnnotationContainer(list_val=[_alerts()])
    return built


def _datasource_variable() -> DatasourceVariable:
    return (
        DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .current(models.VariableOption(text="Prometheus", value="prometheus"))
    )


def _variable(name: str, label: str, series: str, values_of: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        # 1: the values of a label.
        .query({"qryType": 1, "query": f"label_values({series},{values_of})", "refId": "Values"})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
    )


def _several(variable: QueryVariable) -> QueryVariable:
    everything = models.VariableOption(text=["All"], value=["$__all"])
    return variable.multi(multi=True).include_all(include_all=True).current(everything)


def _alerts() -> models.AnnotationQuery:
    return _Alerts(
        name="Alerts",
        datasource=DATASOURCE,
        icon_color=BAD,
        expr='ALERTS{alertstate="firing",alertname=~"Ingest.+",stream=~"$stream|",job=~"$job|",instance=~"$instance|"}',
    )


def main() -> int:
    """Write the file, or check that it is current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless the file is current")
    given = parser.parse_args()
    text = json.dumps(build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if given.check:
        if not _FILE.exists() or _FILE.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{_FILE.name} is not current: run make dashboards\n")
            return 1
        return 0
    _FILE.parent.mkdir(exist_ok=True)
    _FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
