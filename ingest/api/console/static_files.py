"""Serves the style sheet, the script and the icon of the console. Their URLs change with their content, so that browsers keep them."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiohttp import web

from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller, Route

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFiles:
    """The files, read at the start.

    Attributes:
        paths: The URL of each file, by its name.
    """

    def __init__(self, root: str) -> None:
        self._root = f"{root}/static"
        self._contents = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
        self.paths: Mapping[str, str] = {
            name: f"{self._root}/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"
            for name, content in self._contents.items()
        }

    def routes(self) -> Sequence[Route]:
        """The route of all files, which need no login."""
        return [Route("GET", f"{self._root}/{{name}}", None, self._serve)]

    async def _serve(self, request: web.Request, _: Caller) -> web.StreamResponse:
        name = request.match_info["name"]
        content = self._contents.get(name)
        if content is None:
            raise Problem(404, "no_such_path", "there is nothing at this path")
        is_current = request.path_qs == self.paths[name]
        headers = {"Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-cache"}
        return web.Response(body=content, content_type=_TYPES[Path(name).suffix], charset="utf-8", headers=headers)
