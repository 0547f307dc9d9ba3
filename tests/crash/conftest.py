"""Provides scenes on real servers."""

from integration.scenes import fragile, redis_url, scene

__all__ = ["fragile", "redis_url", "scene"]
