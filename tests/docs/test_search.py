"""The search of the built site finds pages by the words of operators, with the site's index in a browser."""

import pytest
from browser.visitor import PATIENCE, chromium

from docs.links import Site

# What an operator types, and a page that answers it.
SEARCHES = {
    "late": "operate/monitor",
    "missing": "operate/reconcile",
    "stop": "operate/pause",
    "lost": "operate/reconcile",
    "disk full": "operate/on-call",
    "undo": "operate/find-and-repair",
    "who": "operate/audit",
    "duplicate": "explanation/guarantees",
    "slow": "operate/on-call",
    "stuck": "operate/on-call",
    "wrong": "operate/find-and-repair",
    "delete": "operate/erase",
    "gdpr": "operate/erase",
    "failed": "operate/dead-letters",
    "retry": "operate/dead-letters",
    "429": "connect/quotas",
    "password": "connect/credentials",
    "restart": "operate/upgrade",
    "faster": "operate/scale",
    "timeout": "explanation/outages-and-throttling",
    "recover": "operate/backup",
    "webhooks": "enqueue/webhooks",
    "shopify": "connect/shopify",
    "check": "operate/doctor",
}
_FOUND = (
    """() => [...document.querySelectorAll('#search-results ul.search li a')].map(link => link.getAttribute('href'))"""
)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_the_page_for_each_word_of_an_operator_is_among_the_first_three(site: Site) -> None:
    missed = {}
    async with chromium() as browser:
        page = await browser.new_page()
        for words, wanted in SEARCHES.items():
            await page.goto(f"{(site.folder / 'search.html').as_uri()}?q={words}")
            # The status is written when the search has ended.
            await page.wait_for_function(
                "() => /found|did not match/.test(document.querySelector('#search-results').innerText)",
                timeout=PATIENCE * 1000,
            )
            first = [link.partition(".html")[0] for link in (await page.evaluate(_FOUND))[:3]]
            if wanted not in first:
                missed[words] = first

    assert missed == {}
