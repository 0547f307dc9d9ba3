"""The dashboard of the workers, from the queue to PostgreSQL. `sections.py` contains its panels."""

from frame import choice, framed, several, sources
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
    return framed(
        dashboard,
        [
            # The job also selects targets that have never responded.
            several(choice("job", "Job", "ingest_queue_pending", "job")),
            sources('ingest_queue_pending{job=~"$job"}'),
            several(choice("instance", "Worker", 'up{job=~"$job"}', "instance")),
        ],
        SECTIONS,
        'source=~"$source|",job=~"$job|",instance=~"$instance|"',
    )
