"""Sends the webhooks of a simulated shop, in any order, each once or with its repetitions."""

import asyncio
from random import Random

import aiohttp

from ingest.lab.shops.kinds.kind import Kind, Webhook
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_site import ShopSite
from ingest.lab.shops.shop_state import Event

_CONCURRENT = 8
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class WebhookSender:
    """Sends webhooks until cancelled. A failed webhook is lost, as in shops that do not repeat it.

    Args:
        site: names the URL, the share of changes and the secret.
        kind: writes and signs the webhooks.
        random: draws the changes that are sent.
    """

    def __init__(self, site: ShopSite, kind: Kind, random: Random) -> None:
        self._site, self._kind, self._random = site, kind, random
        self._waiting: asyncio.Queue[Webhook] = asyncio.Queue()

    def on_event(self, event: Event, order: ShopOrder) -> None:
        """Queue the webhook for an event, if it is drawn."""
        behaviour = self._site.behaviour
        if behaviour.webhooks is None or self._random.random() >= behaviour.webhook_share:
            return
        webhook = self._kind.webhook(event, order, behaviour.webhook_secret.encode())
        if webhook is None:
            return
        self._waiting.put_nowait(webhook)
        for number in range(1, behaviour.webhook_repeats + 1):
            later = number * behaviour.webhook_repeat_after
            asyncio.get_running_loop().call_later(later, self._waiting.put_nowait, webhook)

    async def run(self) -> None:
        """Send queued webhooks."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, asyncio.TaskGroup() as tasks:
            for _ in range(_CONCURRENT):
                tasks.create_task(self._send_all(session))

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        counts = self._site.state.counts
        while True:
            webhook = await self._waiting.get()
            url = self._site.behaviour.webhooks
            if url is None:
                continue
            headers = {"Content-Type": "application/json", **webhook.headers}
            try:
                async with session.post(url, data=webhook.body, headers=headers, allow_redirects=False) as response:
                    counts["webhooks_sent" if response.ok else "webhooks_failed"] += 1
            except (aiohttp.ClientError, TimeoutError):
                counts["webhooks_failed"] += 1
