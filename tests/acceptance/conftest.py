"""For these tests: the queue as commands leave it, and scenes on real servers."""

from acceptance.queued import queued
from integration.scenes import fragile, scene

__all__ = ["fragile", "queued", "scene"]
