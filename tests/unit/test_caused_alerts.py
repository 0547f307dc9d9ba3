"""Each alert has a cause in the rehearsal of `make alerts`, which runs the rules of each deployment faster."""

from pathlib import Path

import pytest
from rehearsals.alerting.configuration import divided, rules
from rehearsals.alerting.deployments import DEPLOYMENTS, Deployment
from rehearsals.alerting.scenarios import ALONE, OF_SOURCES

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "operate" / "alerts.md"


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS.keys())
def test_each_alert_is_caused_and_ended_by_the_rehearsal_in_each_deployment(deployment: Deployment) -> None:
    caused = {(name, severity) for scenario in (*OF_SOURCES, *ALONE) for name, severity, _ in scenario.alerts}

    assert caused == deployment.alerts()


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS.keys())
def test_each_deployment_scrapes_workers_and_the_api_as_often_and_by_the_names_that_rules_expect(
    deployment: Deployment,
) -> None:
    configuration = deployment.configuration()

    default = configuration.get("global", {}).get("scrape_interval", "1m")
    jobs = {job["job_name"]: job.get("scrape_interval", default) for job in configuration["scrape_configs"]}
    assert {job: jobs.get(job) for job in ("ingest", "ingest-api")} == {"ingest": "10s", "ingest-api": "10s"}


@pytest.mark.parametrize(
    ("text", "faster"),
    [
        ("increase(a_total[15m]) > 10", "increase(a_total[45000ms]) > 10"),
        ("job:a:rate5m + job:a:increase15m offset 1h", "job:a:rate5m + job:a:increase15m offset 180000ms"),
        ("count_over_time((a > 0)[10m:10s])", "count_over_time((a > 0)[30000ms:500ms])"),
    ],
)
def test_durations_are_divided_and_names_of_metrics_are_not(text: str, faster: str) -> None:
    assert divided(text, 20) == faster


def test_each_alert_links_to_its_section_by_an_absolute_url() -> None:
    headings = {
        line.removeprefix("## ").strip().lower()
        for line in RUNBOOK.read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    }

    for rule in (
        rule for group in rules(DEPLOYMENTS["compose"], 1)["groups"] for rule in group["rules"] if "alert" in rule
    ):
        url, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert url == "https://order-ingest.example/docs/operate/alerts.html"
        assert section == rule["alert"].lower()
        assert section in headings
