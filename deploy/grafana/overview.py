"""The dashboard of the workers, from the queue to PostgreSQL; `sections.py` has its panels."""

from frame import choice, framed, several
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models import dashboard as models
from sections import SECTIONS


def overview() -> models.Dashboard:
    """The whole dashboard."""
    dashboard = (
        Dashboard("Order ingestion")
        .uid("ingest-overview")
        .description("Orders from the queue through the external API into PostgreSQL, and what slows them down.")
    )
    # As a rule, the workers of one queue are one job of Prometheus. The job also selects targets that have never answered.
    job = several(choice("job", "Job", 'ingest_queue_pending{stream="$stream"}', "job"))
    return framed(
        dashboard,
        [
            choice("stream", "Queue", "ingest_queue_pending", "stream"),
            job.hide(models.VariableHide.HIDE_VARIABLE),
            several(choice("instance", "Worker", 'up{job=~"$job"}', "instance")),
        ],
        SECTIONS,
        'stream=~"$stream|",job=~"$job|",instance=~"$instance|"',
    )
