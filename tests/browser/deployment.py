"""A running deployment for browsers: `ingest api` and `ingest worker` as processes, and three shops behind them."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from acceptance.commands import WorkerCommand
from aiohttp import web
from browser import planted
from integration.scene import Scene
from integration.site import serving_routes
from support import Cli, eventually

from ingest.domain.api_key import Scope
from ingest.domain.source_name import queue_of
from ingest.operations import api_keys
from ingest.operations.api_keys import limit_of

# A test may change the behaviour of two of them. The third plants scripts in every field.
CALM, MOODY, HOSTILE = "calm", "moody", "hostile"
HOSTILE_IDS = (planted.SCRIPT, planted.IMAGE, "49{{7*7}}", f"broken {planted.SCRIPT}", "broken-2")


@dataclass(frozen=True, slots=True)
class Deployment:
    """The running processes, and everything that a test may change behind them.

    Attributes:
        url: of the API, without a trailing slash.
        scenes: the queue and the simulated API of each source, except for the hostile one.
        keys: an API key for each role: `read`, `operate` and `erase`, which includes the roles before it.
        api: the running `ingest api`.
        worker: the running `ingest worker`.
        cli: the commands of this deployment.
    """

    url: str
    scenes: Mapping[str, Scene]
    keys: Mapping[str, str]
    api: WorkerCommand
    worker: WorkerCommand
    cli: Cli

    @classmethod
    @asynccontextmanager
    async def open(
        cls, redis_url: str, dsn: str, folder: Path, environ: Mapping[str, str], **settings: object
    ) -> AsyncIterator["Deployment"]:
        """Start everything in an empty folder, and end it.

        Args:
            redis_url: the server for its queues, which get their own name.
            dsn: a database with our tables.
            folder: for the sources file and the API keys.
            environ: variables of the commands besides ours.
            settings: of all commands, named as in Python.
        """
        stream = f"test-{secrets.token_hex(6)}"
        async with AsyncExitStack() as stack:
            scenes = {
                name: await stack.enter_async_context(Scene.open(redis_url, dsn, queue_of(stream, name)))
                for name in (CALM, MOODY, HOSTILE)
            }
            hostile = await stack.enter_async_context(serving_routes({"/orders/{order_id:.*}": _hostile_order}))
            urls = {name: scene.api.url_template for name, scene in scenes.items()}
            urls[HOSTILE] = f"{hostile}/orders/{{order_id}}"
            (folder / "sources.toml").write_text("\n".join(map(_section, urls, urls.values())))
            own = {
                "redis_url": redis_url, "postgres_dsn": dsn, "stream": stream, "sources": folder / "sources.toml",
                "api_keys_file": folder / "keys", "api_port": 0, "api_metrics_port": 0, "metrics_port": 0,
                "log_format": "json", **settings,
            }  # fmt: skip
            cli = Cli({**environ, **{f"INGEST_{name.upper()}": str(value) for name, value in own.items()}})
            stack.callback(cli.close)
            keys = _create_keys(folder / "keys")
            api, worker = WorkerCommand(cli.start("api")), WorkerCommand(cli.start("worker", "--processes", "1"))
            stack.callback(api.close)
            stack.callback(worker.close)
            url = str((await api.says("listening"))["url"])
            yield cls(url, scenes, keys, api, worker, cli)

    async def enqueue(self, source: str, *order_ids: str) -> None:
        """Enqueue orders of a source."""
        await self.scenes[source].enqueue(*order_ids)

    async def finished(self, source: str) -> None:
        """Wait until nothing of a source is left to do, except for its dead letters."""
        await eventually(self.scenes[source].is_finished)

    async def plant(self) -> None:
        """Enqueue the orders of the hostile shop, and wait until they are stored or dead-lettered."""
        await self.enqueue(HOSTILE, *HOSTILE_IDS)
        await self.finished(HOSTILE)


def _section(name: str, url: str) -> str:
    return f'[sources.{name}]\nkeep_document = true\nupstream = {{ url = "{url}", tries = 1 }}\n'


def _create_keys(path: Path) -> dict[str, str]:
    roles = {"read": [Scope.READ], "operate": [Scope.READ, Scope.PERSONAL, Scope.OPERATE, Scope.ENQUEUE]}
    roles["erase"] = [*roles["operate"], Scope.ERASE]
    return {role: api_keys.create(path, role, scopes, limit_of(10_000, 10_000))[0] for role, scopes in roles.items()}


async def _hostile_order(request: web.Request) -> web.Response:
    order_id = unquote(request.raw_path.removeprefix("/orders/"))
    return web.Response(body=planted.document(order_id), content_type="application/json")
