"""The committed configuration of Prometheus and Alertmanager, with all times divided by one number.

Rules, routes and inhibitions are the committed ones. Only durations, limits in seconds, addresses and the receiver differ.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from rehearsals.alerting.deployments import Deployment

_DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
# The numbers after a letter are parts of names, such as `rate5m`.
_DURATION = re.compile(r"(?<![A-Za-z_0-9])(\d+)(ms|s|m|h|d)\b")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Limits that are times, by alert. Other numbers count orders, samples or requests.
_SECONDS = {"IngestQueueOld": ("> 900", "> 3600"), "IngestPollBehind": ("+ 600",)}


def divided(text: str, speed: float) -> str:
    """The text with all durations divided."""
    return _DURATION.sub(lambda found: f"{max(1, round(int(found[1]) * _UNITS[found[2]] / speed))}ms", text)


def rules(deployment: Deployment, speed: float) -> dict[str, Any]:
    """All rules of a deployment in one file."""
    groups = deployment.groups()
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["expr"] = divided(rule["expr"], speed)
        for limit in _SECONDS.get(rule.get("alert", ""), ()):
            sign, number = limit.split()
            rule["expr"] = re.sub(rf"{re.escape(limit)}\b", f"{sign} {int(number) / speed:g}", rule["expr"])
        if "for" in rule:
            rule["for"] = divided(rule["for"], speed)
    return {"groups": groups}


def prometheus(
    deployment: Deployment, speed: float, rule_file: Path, targets: Path, ports: tuple[int, int]
) -> dict[str, Any]:
    """The configuration of Prometheus, which finds workers and the API in files.

    Args:
        deployment: whose configuration it is.
        speed: divides all times.
        rule_file: the rules.
        targets: folder with the file `JOB.json` for each job.
        ports: its own port, and the port of Alertmanager.
    """
    own, alertmanager = (f"127.0.0.1:{port}" for port in ports)
    read = deployment.configuration()
    addresses = {"prometheus": own, "alertmanager": alertmanager}
    for job in read["scrape_configs"]:
        job.pop("dns_sd_configs", None)
        for name in {"scrape_interval", "scrape_timeout"} & job.keys():
            job[name] = divided(job[name], speed)
        if job["job_name"] in addresses:
            job["static_configs"] = [{"targets": [addresses[job["job_name"]]]}]
        else:
            job.pop("static_configs", None)
            job["file_sd_configs"] = [{"files": [str(targets / f"{job['job_name']}.json")], "refresh_interval": "1s"}]
    # The default of Prometheus.
    times = {"evaluation_interval": "1m"} | read.get("global", {})
    read["global"] = {name: divided(value, speed) for name, value in times.items()}
    read["rule_files"] = [str(rule_file)]
    read["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return read


def alertmanager(speed: float, receiver: str) -> dict[str, Any]:
    """The configuration of Alertmanager, which sends everything to the URL of a webhook."""
    read = yaml.safe_load((_DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"))
    for name in ("group_wait", "group_interval"):
        read["route"][name] = divided(read["route"][name], speed)
    read["receivers"] = [{"name": "team", "webhook_configs": [{"url": receiver}]}]
    return dict(read)
