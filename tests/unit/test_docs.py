"""The reference pages say what the code does."""

from pathlib import Path

from pydantic import SecretStr

from ingest.domain.queue_state import QueueState
from ingest.settings import PREFIX, Settings
from ingest.telemetry.collectors import BuildCollector, QueueCollector
from ingest.telemetry.metrics import WORKER_METRICS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_settings_page_has_each_setting_with_its_default_and_description() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")

    for name, field in Settings.model_fields.items():
        default = field.default.get_secret_value() if isinstance(field.default, SecretStr) else field.default
        shown = "" if default is None else f"`{default}`"
        assert f"| `{PREFIX}{name.upper()}` | {shown} | {field.description} |" in page


def test_the_metrics_page_has_each_metric_with_its_labels() -> None:
    page = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    gauges = [*QueueCollector("x", QueueState()).collect(), *BuildCollector().collect()]

    for spec in WORKER_METRICS:
        label = f"`{spec.label}` = {', '.join(spec.values)}" if spec.label else ""
        assert f"| `{spec.name}` | {spec.kind} | {label} | {spec.help} |" in page
    for metric in gauges:
        labels = ", ".join(f"`{name}`" for name in metric.samples[0].labels)
        assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.documentation} |" in page


def test_no_text_installs_a_package_that_nobody_publishes() -> None:
    root = REFERENCE.parents[1]
    texts = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("ingest/**/*.py"), *root.glob("deploy/**/*.md")]

    telling = [path for path in texts if "pip install 'order-ingest" in path.read_text(encoding="utf-8")]

    assert telling == []
