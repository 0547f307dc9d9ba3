"""The common frame of the dashboards, with variables, and with alerts marked on all graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.models import dashboard as models
from look import BAD, DATASOURCE, Panel


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading, which fill rows of 24 columns."""

    title: str
    panels: Sequence[Panel]


class _Alerts(models.AnnotationQuery):
    """Marks the times at which alerts were firing. The SDK has no type for annotations of Prometheus."""

    def to_json(self) -> dict[str, object]:
        """Return the form that Grafana 12 reads."""
        return super().to_json() | {
            "target": {"expr": self.expr, "interval": "10s", "refId": "Anno"},
            "titleFormat": "{{alertname}}",
            "textFormat": "{{severity}} {{source}} {{instance}}",
            "tagKeys": "severity",
        }


def framed(
    dashboard: Dashboard,
    variables: Sequence[QueryVariable],
    sections: Sequence[Callable[[], Section]],
    alerts: str,
) -> models.Dashboard:
    """Build a dashboard from its variables, its sections from top to bottom, and the alerts with the labels `alerts`."""
    dashboard = (
        dashboard.tags(["order-ingest"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(_datasource_variable())
    )
    for variable in variables:
        dashboard.with_variable(variable)
    # Explicit numbers, because an inserted panel would otherwise change the numbers of all later panels.
    for hundreds, section in enumerate((section() for section in sections), 1):
        dashboard.with_row(Row(section.title).id(100 * hundreds))
        for position, panel in enumerate(section.panels, 1):
            dashboard.with_panel(panel.id(100 * hundreds + position))
    built = dashboard.build()
    built.annotations = models.AnnotationContainer(list_val=[_alerts(alerts)])
    return built


def _datasource_variable() -> DatasourceVariable:
    return (
        DatasourceVariable("datasource")
        .label("Data source")
        .type("prometheus")
        .current(models.VariableOption(text="Prometheus", value="prometheus"))
    )


def choice(name: str, label: str, series: str, values_of: str) -> QueryVariable:
    """A variable with the values of a label of a series."""
    return (
        QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        # 1 selects the values of a label.
        .query({"qryType": 1, "query": f"label_values({series},{values_of})", "refId": "Values"})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.NATURAL_ASC)
    )


def several(variable: QueryVariable) -> QueryVariable:
    """Allow the choice of several values, and of all."""
    everything = models.VariableOption(text=["All"], value=["$__all"])
    return variable.multi(multi=True).include_all(include_all=True).current(everything)


def sources(series: str) -> QueryVariable:
    """The choice of sources of a series. "All" includes the source without a name, which lacks the label."""
    return several(choice("source", "Source", series, "source")).all_value(".*")


def by_source(expr: str) -> str:
    """The expression, with a label for the source without a name, because the legend shows it."""
    return f'label_replace({expr}, "source", "(unnamed)", "source", "")'


def _alerts(labels: str) -> models.AnnotationQuery:
    return _Alerts(
        name="Alerts",
        datasource=DATASOURCE,
        icon_color=BAD,
        expr=f'ALERTS{{alertstate="firing",alertname=~"Ingest.+",{labels}}}',
    )
