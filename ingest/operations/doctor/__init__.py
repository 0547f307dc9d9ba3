"""Examines a set-up before workers are started: Redis, PostgreSQL, the external API and the settings.

It leaves no data behind, needs no more rights than a worker, and gives advice for each error. `examine` runs all checks. The module of
each area turns facts (from `ingest.queue.operate.inspection`, `ingest.store.inspection` or `ingest.upstream.inspection`) into findings.
"""

from ingest.operations.doctor.examine import Subject, examine
from ingest.operations.doctor.finding import Area, Diagnosis, Finding, Level
from ingest.operations.doctor.host import Machine
from ingest.operations.doctor.outbox import OutboxSubject
from ingest.operations.doctor.redis import CONNECTIONS_OF_A_PROCESS, RedisNeeds
from ingest.operations.doctor.settings import Configured
from ingest.operations.doctor.upstream import Api, UpstreamSubject

__all__ = [
    "CONNECTIONS_OF_A_PROCESS",
    "Api",
    "Area",
    "Configured",
    "Diagnosis",
    "Finding",
    "Level",
    "Machine",
    "OutboxSubject",
    "RedisNeeds",
    "Subject",
    "UpstreamSubject",
    "examine",
]
