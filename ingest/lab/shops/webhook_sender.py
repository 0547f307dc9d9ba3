"""Sends the webhooks of a simulated shop, in any order, and sends failed ones again as the shop does."""

import asyncio
from collections.abc import Mapping
from random import Random

import aiohttp

from ingest.lab.shops.kinds.kind import Kind, Webhook
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_site import ShopSite
from ingest.lab.shops.shop_state import Event

_CONCURRENT = 8
_SECOND: Mapping[Event, Event] = {"created": "updated", "updated": "status"}
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class WebhookSender:
    """Sends webhooks until cancelled. A failed webhook is lost, unless the mode `webhook_hour` is set.

    Args:
        site: names the URL, the share of changes and the secret.
        kind: writes and signs the webhooks.
        random: draws the changes that are sent.
    """

    def __init__(self, site: ShopSite, kind: Kind, random: Random) -> None:
        self._site, self._kind, self._random = site, kind, random
        self._waiting: asyncio.Queue[tuple[Webhook, int]] = asyncio.Queue()
        self._failures = 0

    def on_event(self, event: Event, order: ShopOrder) -> None:
        """Queue the webhooks for an event, if they are drawn."""
        behaviour = self._site.behaviour
        if behaviour.webhooks is None or self._random.random() >= behaviour.webhook_share:
            return
        second = _SECOND.get(event) if behaviour.second_topic else None
        for topic in (event, second):
            if topic and (webhook := self._kind.webhook(topic, order, behaviour.webhook_secret.encode())):
                self._waiting.put_nowait((webhook, 0))

    async def run(self) -> None:
        """Send queued webhooks."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, asyncio.TaskGroup() as tasks:
            for _ in range(_CONCURRENT):
                tasks.create_task(self._send_all(session))

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        while True:
            webhook, retries = await self._waiting.get()
            url = self._site.behaviour.webhooks
            if url is None:
                continue
            headers = {"Content-Type": "application/json", **webhook.headers}
            try:
                async with session.post(url, data=webhook.body, headers=headers, allow_redirects=False) as response:
                    is_received = response.ok
            except (aiohttp.ClientError, TimeoutError):
                is_received = False
            self._site.state.counts["webhooks_sent" if is_received else "webhooks_failed"] += 1
            behaviour = self._site.behaviour
            if is_received and not (behaviour.unheard and self._random.random() < behaviour.unheard):
                self._failures = 0
            elif behaviour.webhook_hour:
                self._retry(webhook, retries, behaviour.webhook_hour / 3600)

    def _retry(self, webhook: Webhook, retries: int, pace: float) -> None:
        """Send a failed webhook again later, or stop all webhooks after too many failures."""
        self._failures += 1
        if self._kind.most_failures is not None and self._failures > self._kind.most_failures:
            self._site.behave(webhooks=None)
        elif retries < len(self._kind.retries):
            self._site.state.counts["webhooks_repeated"] += 1
            later = self._kind.retries[retries] * pace
            asyncio.get_running_loop().call_later(later, self._waiting.put_nowait, (webhook, retries + 1))
