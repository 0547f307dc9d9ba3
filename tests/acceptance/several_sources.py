"""Several sources of one deployment, each with its own simulated API and queue, on the same servers, and their sources file."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from acceptance.commands import Workers
from integration.scene import Scene
from support import Cli, eventually

from ingest.domain.source_name import queue_of

MAPPING = """
[order]
id = "id"
status = "status"
placed_at = "placed_at"
currency = "currency"
country = {{ value = "{country}" }}

[[lines]]
from = "lines"
sku = "sku"
quantity = "quantity"
unit_price = "unit_price"
"""


class Shops:
    """The sources by name, each with the scene of its queue and its API.

    Args:
        file: the sources file.
    """

    def __init__(self, scenes: Mapping[str, Scene], file: Path, stream: str) -> None:
        self.scenes = scenes
        self.file = file
        self.stream = stream
        self._more: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, scene: Scene, file: Path, *names: str) -> AsyncIterator["Shops"]:
        """Open sources with these names, on the servers of this scene."""
        async with AsyncExitStack() as stack:
            queues = {name: queue_of(scene.queue, name) for name in names}
            scenes = {
                name: await stack.enter_async_context(Scene.open(scene.redis_url, scene.dsn, queue))
                for name, queue in queues.items()
            }
            shops = cls(scenes, file, scene.queue)
            shops.write()
            yield shops

    def __getitem__(self, name: str) -> Scene:
        return self.scenes[name]

    def write(self, *names: str, **changed: str) -> None:
        """Write the file with these sources, or all, and with these further lines of TOML in their sections."""
        sections = []
        for name in names or self.scenes:
            url = self.scenes[name].api.url_template
            sections.append(f'[sources.{name}]\n{changed.get(name, "")}\nupstream.url = "{url}"\nupstream.tries = 1\n')
        written = self.file.with_suffix(".new")
        written.write_text("\n".join(sections))
        written.replace(self.file)

    def workers(self, cli: Cli) -> Workers:
        """Worker commands of all sources."""
        return Workers(
            cli, {"INGEST_SOURCES": str(self.file), "INGEST_STREAM": self.stream, "INGEST_LOG_FORMAT": "json"}
        )

    async def stored(self, name: str, order_ids: list[str], within: float = 30.0) -> None:
        """Wait until these orders of a source are stored."""
        scene = self.scenes[name]

        async def is_stored() -> bool:
            query = "SELECT count(*) FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])"
            return int((await scene.sql(query, name, order_ids))[0][0]) == len(order_ids)

        await eventually(is_stored, within=within)
