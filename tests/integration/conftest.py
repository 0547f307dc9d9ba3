"""For these tests: scenes on real servers."""

from http_api import serve
from integration.scenes import fragile, redis, redis_url, scene

__all__ = ["fragile", "redis", "redis_url", "scene", "serve"]
