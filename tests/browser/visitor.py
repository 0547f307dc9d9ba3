"""A visitor of the console in a real browser, who opens pages, uses the keyboard, and finds errors of a page."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, Response, async_playwright
from servers.get import CHROMIUM

# The browser runs as root in containers, loads only pages of this machine, and opens no other connections.
_OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
WIDTHS = (390, 768, 1440)
THEMES = ("light", "dark")
# `make browser` sets it. Without it, pictures are not taken.
PICTURES = os.environ.get("INGEST_TEST_PICTURES")
# For conditions in a page, on a machine that may be loaded.
PATIENCE = 30.0
_SERIOUS = {"serious", "critical"}

# Runs before each page's own scripts, and reports blocked scripts and styles. The page's policy does not apply to it.
_WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event => window.violations.push(event.effectiveDirective));
"""
_FOCUSED = """() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const label = element.labels && element.labels.length ? element.labels[0].innerText : '';
  return {
    name: (element.getAttribute('aria-label') || label || element.innerText || element.value || '').trim(),
    tag: element.tagName.toLowerCase(),
    seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== 'none',
  };
}"""
_OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A running browser without windows."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM.binary, args=_OPTIONS)
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """One visitor with a separate browser context (cookies, viewport, theme).

    Attributes:
        page: the current page, for everything that has no method here.
        problems: errors in the browser's console, failed scripts, dialogs and failed responses so far.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self._url = url
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"script failed: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("response", self._on_response)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        browser: Browser,
        url: str,
        *,
        width: int = 1440,
        theme: str = "light",
        scripts: bool = True,
        **options: Any,
    ) -> AsyncIterator["Visitor"]:
        """Open a browser of this width and theme, with or without JavaScript, for pages below `url`."""
        context = await browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,  # type: ignore[arg-type]
            java_script_enabled=scripts,
            reduced_motion="reduce",
            **options,
        )
        await context.add_init_script(_WATCH)
        try:
            yield cls(await context.new_page(), url)
        finally:
            await context.close()

    async def goto(self, path: str) -> Response:
        """Open a page, and fail if its status is an error."""
        response = await self.page.goto(self._url + path, wait_until="domcontentloaded")
        assert response is not None, path
        assert response.ok, f"{path}: {response.status}"
        return response

    async def sign_in(self, key: str) -> None:
        """Sign in with an API key, with the keyboard."""
        await self.goto("/console/login")
        await self.page.get_by_label("API key").fill(key)
        async with self.page.expect_navigation():
            await self.page.keyboard.press("Enter")

    # -- by keyboard ------------------------------------------------------------------------------------------

    async def focused(self) -> Mapping[str, Any] | None:
        """The element with the focus: its name, its tag, and whether the focus is visible."""
        found: Mapping[str, Any] | None = await self.page.evaluate(_FOCUSED)
        return found

    async def tab_to(self, name: str, most: int = 100) -> None:
        """Press Tab until the element with this name, or a name that matches it, is visibly focused."""
        passed = []
        for _ in range(most):
            await self.page.keyboard.press("Tab")
            focused = await self.focused()
            if focused is None:
                continue
            passed.append(focused["name"])
            if re.fullmatch(name, focused["name"]):
                assert focused["seen"], f"the focus on {focused['name']!r} is not visible"
                return
        raise AssertionError(f"Tab does not reach {name!r}, only {passed}")

    async def press(self, name: str) -> None:
        """Reach a link or a button by Tab, press Enter, and wait for the next page."""
        await self.tab_to(name)
        async with self.page.expect_navigation(wait_until="domcontentloaded"):
            await self.page.keyboard.press("Enter")

    async def fill(self, name: str, text: str) -> None:
        """Reach a field by Tab, and type a text into it."""
        await self.tab_to(name)
        await self.page.keyboard.type(text)

    # -- requirements of a page ------------------------------------------------------------------------------------

    async def assert_accessible(self) -> None:
        """Fail on serious and critical findings of axe."""
        results = await Axe().run(self.page)
        serious = [found for found in results.response["violations"] if found["impact"] in _SERIOUS]
        assert not serious, "\n".join(
            f"{self.page.url}: {found['id']}: {found['help']}: {[node['html'][:200] for node in found['nodes'][:3]]}"
            for found in serious
        )

    async def assert_fits(self) -> None:
        """Fail if the page is wider than the window."""
        assert await self.page.evaluate(_OVERFLOW) <= 0, f"{self.page.url} scrolls sideways"

    async def violations(self) -> list[str]:
        """The directives of the page's policy that have blocked something."""
        found: list[str] = await self.page.evaluate("window.violations")
        return found

    async def picture(self, name: str) -> None:
        """Take a picture of the whole page into the folder INGEST_TEST_PICTURES, if that is set."""
        if PICTURES:
            # The browser's library creates the folder.
            await self.page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)

    async def in_each_size(self, name: str) -> None:
        """Check the current page in each width and theme: it fits, is accessible, and a picture is taken."""
        for theme in THEMES:
            await self.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            for width in WIDTHS:
                await self.page.set_viewport_size({"width": width, "height": 900})
                await self.assert_fits()
                await self.picture(f"{name}-{width}-{theme}")
            await self.assert_accessible()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"{self.page.url}: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        self._dismissal = asyncio.ensure_future(dialog.dismiss())

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.url}: {response.status}")
