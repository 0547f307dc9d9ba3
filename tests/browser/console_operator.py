"""An operator who is on call and uses nothing but the console, in a real browser."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from acceptance.commands import WorkerCommand
from browser.visitor import Visitor
from playwright.async_api import Browser
from rehearsals.on_call.stage import Stage
from shipped import as_api

from ingest.domain.api_key import Scope
from ingest.operations import api_keys
from ingest.operations.api_keys import limit_of

_SCOPES = [Scope.READ, Scope.PERSONAL, Scope.OPERATE, Scope.ERASE, Scope.ENQUEUE]
_OFTEN = 0.25


@dataclass(slots=True)
class Steps:
    """The steps of the operator in one situation.

    Attributes:
        done: pages opened, links and buttons pressed, and other tools.
        repaired: seconds from the fault until everything worked again.
    """

    title: str
    done: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    repaired: float = 0.0

    def row(self) -> str:
        """A row of a Markdown table."""
        return f"| {self.title} | {len(self.done)} | {self.repaired:.0f} s |"

    def text(self) -> str:
        """All steps."""
        return "\n".join((f"## {self.title}\n", *(f"{number}. {step}" for number, step in enumerate(self.done, 1)), ""))


class ConsoleOperator:
    """Opens pages, reads them, and presses their links and buttons."""

    def __init__(self, visitor: Visitor, title: str) -> None:
        self.visitor = visitor
        self.steps = Steps(title)

    @classmethod
    @asynccontextmanager
    async def open(cls, stage: Stage, browser: Browser, title: str) -> AsyncIterator["ConsoleOperator"]:
        """Start `ingest api` for the deployment, and log in with a key that permits everything."""
        keys = stage.folder / "keys"
        key, _ = api_keys.create(keys, "on-call", _SCOPES, limit_of(10_000, 10_000))
        own = {"INGEST_API_KEYS_FILE": str(keys), "INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}
        # The account of the workers may not act under the name of a key.
        own["INGEST_POSTGRES_DSN"] = as_api(stage.environment["INGEST_POSTGRES_DSN"])
        api = WorkerCommand(stage.cli.start("api", env={**stage.environment, **own}))
        try:
            url = str((await api.says("listening"))["url"])
            async with Visitor.open(browser, url) as visitor:
                await visitor.sign_in(key)
                yield cls(visitor, title)
        finally:
            api.close()

    async def open_page(self, path: str) -> None:
        """Open a page by its path below `/console`."""
        await self.visitor.goto(f"/console{path}")
        self.steps.done.append(f"open `/console{path}`")

    async def sees(self, path: str, text: str, within: float = 90.0) -> str:
        """Open a page, and watch it until its text matches a regular expression. It updates itself, or is opened again."""
        until = time.monotonic() + within
        await self.open_page(path)
        opened = time.monotonic()
        while True:
            shown = " ".join((await self.visitor.page.inner_text("main")).split())
            if re.search(text, shown):
                self.steps.done[-1] += f", which shows `{re.search(text, shown)[0]}`"  # type: ignore[index]  # just found
                return shown
            assert time.monotonic() < until, f"no {text} within {within} s in:\n{shown}"
            await asyncio.sleep(_OFTEN)
            if time.monotonic() > opened + 5:
                await self.visitor.goto(f"/console{path}")
                opened = time.monotonic()

    async def press(self, name: str) -> None:
        """Press the first link or button whose name matches a regular expression, and wait for the next page."""
        main, exact = self.visitor.page.locator("main"), re.compile(f"^{name}$")
        found = main.get_by_role("link", name=exact).or_(main.get_by_role("button", name=exact)).first
        await found.wait_for()
        async with self.visitor.page.expect_navigation(wait_until="domcontentloaded"):
            await found.click()
        self.steps.done.append(f"press *{name}*".replace("\\", ""))

    async def fill(self, label: str, text: str) -> None:
        """Fill in a field."""
        await self.visitor.page.locator("main").get_by_label(label).first.fill(text)
        self.steps.done.append(f"fill in *{label}*: `{text}`")

    async def waits_for_job(self, within: float = 300.0) -> None:
        """Watch the page of a job until it is done."""
        done = self.visitor.page.locator("[data-live] .badge.good", has_text="done")
        await done.wait_for(timeout=1000 * within)

    async def downloads(self, name: str) -> str:
        """Press a link that downloads a file, and return its text."""
        async with self.visitor.page.expect_download() as downloading:
            await self.visitor.page.locator("main").get_by_role("link", name=name).click()
        path = await (await downloading.value).path()
        self.steps.done.append(f"press *{name}*")
        return await asyncio.to_thread(path.read_text)

    @contextmanager
    def other_tool(self, line: str) -> Iterator[None]:
        """Record a step outside of the console, such as a text editor."""
        yield
        self.steps.done.append(f"elsewhere: `{line}`")
