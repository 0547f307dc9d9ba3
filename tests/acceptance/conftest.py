"""For these tests: scenes on real servers."""

from integration.scenes import fragile, scene

__all__ = ["fragile", "scene"]
