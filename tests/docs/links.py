"""Internal links of the built site: `python -m docs.links FOLDER` lists those that lead to no page or no anchor."""

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """The links and anchors of one page."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {name for name in (values.get("id"), values.get("name")) if name}
        link = values.get("src" if tag in {"img", "script"} else "href")
        if link is not None and tag != "form":
            self.links.append(link)


class Site:
    """All pages of a built site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages: dict[Path, Page] = {}
        for path in sorted(folder.rglob("*.html")):
            page = Page()
            page.feed(path.read_text("utf-8"))
            self.pages[path.relative_to(folder)] = page

    def broken(self) -> list[str]:
        """Each internal link that leads nowhere, with its page."""
        return [
            f"{path}: {link}"
            for path, page in self.pages.items()
            for link in page.links
            if not urlsplit(link).scheme
            and not urlsplit(link).netloc
            and not self.leads_somewhere(path.as_posix(), link)
        ]

    def leads_somewhere(self, origin: str, link: str) -> bool:
        """Whether a link on the page `origin` leads to a file of the site and to an anchor in it."""
        parts = urlsplit(link)
        target = self.folder / Path(origin).parent / unquote(parts.path) if parts.path else self.folder / origin
        target = target.resolve()
        if not target.is_file() or not target.is_relative_to(self.folder.resolve()):
            return False
        page = self.pages.get(target.relative_to(self.folder.resolve()))
        return not parts.fragment or page is None or unquote(parts.fragment) in page.anchors


def main() -> None:
    site = Site(Path(sys.argv[1]))
    broken = site.broken()
    counts = (
        f"{len(site.pages)} pages, {sum(len(page.links) for page in site.pages.values())} links, {len(broken)} broken"
    )
    sys.stdout.write("".join(f"{line}\n" for line in [*broken, counts]))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
