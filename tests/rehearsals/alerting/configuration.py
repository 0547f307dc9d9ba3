"""The committed configuration of Prometheus and Alertmanager, with all times divided by one number.

Rules, routes and inhibitions are the committed ones. Only durations, limits in seconds, addresses and the receiver differ.
"""

import re
from pathlib import Path
from typing import Any

import yaml

_DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
_RULES = _DEPLOY / "prometheus" / "rules"
# The numbers after a letter are parts of names, such as `rate5m`.
_DURATION = re.compile(r"(?<![A-Za-z_0-9])(\d+)(ms|s|m|h|d)\b")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# Limits that are times, by alert. Other numbers count orders, samples or requests.
_SECONDS = {"IngestQueueOld": ("> 900", "> 3600"), "IngestPollBehind": ("+ 600",)}


def divided(text: str, speed: float) -> str:
    """The text with all durations divided."""
    return _DURATION.sub(lambda found: f"{max(1, round(int(found[1]) * _UNITS[found[2]] / speed))}ms", text)


def rules(speed: float) -> dict[str, Any]:
    """All rules in one file."""
    groups = []
    for path in sorted(_RULES.glob("*.yml"), reverse=True):  # recording rules first
        groups += yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["expr"] = divided(rule["expr"], speed)
        for limit in _SECONDS.get(rule.get("alert", ""), ()):
            sign, number = limit.split()
            rule["expr"] = re.sub(rf"{re.escape(limit)}\b", f"{sign} {int(number) / speed:g}", rule["expr"])
        if "for" in rule:
            rule["for"] = divided(rule["for"], speed)
    return {"groups": groups}


def alerts() -> set[tuple[str, str]]:
    """The name and the severity of each committed alert."""
    found = [rule for group in rules(1)["groups"] for rule in group["rules"] if "alert" in rule]
    return {(rule["alert"], rule["labels"]["severity"]) for rule in found}


def prometheus(speed: float, rule_file: Path, targets: Path, ports: tuple[int, int]) -> dict[str, Any]:
    """The configuration of Prometheus, which finds workers and the API in files instead of DNS.

    Args:
        speed: divides all times.
        rule_file: the rules.
        targets: folder with the file `JOB.json` for each job.
        ports: its own port, and the port of Alertmanager.
    """
    own, alertmanager = (f"127.0.0.1:{port}" for port in ports)
    read = yaml.safe_load((_DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    addresses = {"prometheus": own, "alertmanager": alertmanager}
    for job in read["scrape_configs"]:
        if job.pop("dns_sd_configs", None):
            job["file_sd_configs"] = [{"files": [str(targets / f"{job['job_name']}.json")], "refresh_interval": "1s"}]
        else:
            job["static_configs"] = [{"targets": [addresses[job["job_name"]]]}]
    read["global"] = {name: divided(value, speed) for name, value in read["global"].items()}
    read["rule_files"] = [str(rule_file)]
    read["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    return dict(read)


def alertmanager(speed: float, receiver: str) -> dict[str, Any]:
    """The configuration of Alertmanager, which sends everything to the URL of a webhook."""
    read = yaml.safe_load((_DEPLOY / "alertmanager" / "alertmanager.yml").read_text(encoding="utf-8"))
    for name in ("group_wait", "group_interval"):
        read["route"][name] = divided(read["route"][name], speed)
    read["receivers"] = [{"name": "team", "webhook_configs": [{"url": receiver}]}]
    return dict(read)
