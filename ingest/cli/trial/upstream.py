"""`ingest upstream`: runs the simulated external API as a separate process."""

import asyncio
import gc
import re
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from ingest.cli.options import option
from ingest.cli.trial.shop import serve_shop
from ingest.domain.errors import ConfigError
from ingest.lab.shops.shop_modes import described_modes
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.behaviour import changed
from ingest.lab.upstream.tls import server_tls
from ingest.process.lifecycle import stop_on_signals

_DEFAULT = Behaviour()

_LISTENING = "Address"
_SPEED = "Latency"
_FAULTS = "Faults, as shares of all requests (0 to 1, together at most 1)"
_LIMITS = "Limits and outages"
_ACCESS = "Credentials and TLS"
_ORDERS = "Orders"
_SHOPS = "Whole shops"


def _share(help_text: str) -> Any:
    return option(_FAULTS, help_text, min=0, max=1, show_default=False)


def upstream(  # noqa: PLR0913  each parameter is one option
    *,
    host: Annotated[str, option(_LISTENING, "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option(_LISTENING, "Port. 0 selects a free one.", min=0, max=65535)] = 8081,
    latency: Annotated[
        str, option(_SPEED, "Seconds until the response: 0.1, 0.1-0.2 (uniform) or lognormal:MEDIAN,SIGMA.")
    ] = _DEFAULT.latency,
    error_rate: Annotated[float, _share("Answered with --error-status.")] = 0.0,
    error_status: Annotated[int, option(_FAULTS, "The status of an error.", min=400, max=599)] = _DEFAULT.error_status,
    unavailable_rate: Annotated[float, _share("503 with Retry-After.")] = 0.0,
    not_found_rate: Annotated[float, _share("404 though the order exists.")] = 0.0,
    redirect_rate: Annotated[float, _share("302, pointing to the same order.")] = 0.0,
    malformed_rate: Annotated[float, _share("200 with broken JSON.")] = 0.0,
    wrong_type_rate: Annotated[float, _share("200 with JSON that is not an order.")] = 0.0,
    oversize_rate: Annotated[float, _share("200 with a body of --oversize-bytes.")] = 0.0,
    oversize_bytes: Annotated[
        int, option(_FAULTS, "Length of such a body.", min=64, max=1 << 30)
    ] = _DEFAULT.oversize_bytes,
    truncate_rate: Annotated[float, _share("The connection closes after half of the body.")] = 0.0,
    reset_rate: Annotated[float, _share("The connection is reset without an answer.")] = 0.0,
    hang_rate: Annotated[float, _share("No response.")] = 0.0,
    breaking_id: Annotated[
        str | None, option(_FAULTS, "Every request for this order gets --error-status.")
    ] = _DEFAULT.breaking_id,
    fail_first: Annotated[
        int, option(_FAULTS, "Only the first n requests for each order are faulty. 0 for any.", min=0)
    ] = _DEFAULT.fail_first,
    seed: Annotated[
        int | None, option(_FAULTS, "Seed of the random generator. Defaults to a random one.", metavar="N")
    ] = None,
    rate_limit: Annotated[
        float, option(_LIMITS, "Requests per second above which it responds with 429. 0 for no limit.", min=0)
    ] = _DEFAULT.rate_limit,
    rate_burst: Annotated[
        int | None,
        option(_LIMITS, "Requests that may arrive in a burst. Defaults to the requests of one second.", min=1),
    ] = _DEFAULT.rate_burst,
    concurrency_limit: Annotated[
        int, option(_LIMITS, "Concurrent requests above which it responds with 429. 0 for no limit.", min=0)
    ] = _DEFAULT.concurrency_limit,
    capacity: Annotated[
        int, option(_LIMITS, "Requests processed concurrently, while others wait. 0 for no limit.", min=0)
    ] = _DEFAULT.capacity,
    capacity_queue: Annotated[
        int, option(_LIMITS, "Requests that may wait. More get 503.", min=0)
    ] = _DEFAULT.capacity_queue,
    quota: Annotated[
        int, option(_LIMITS, "Requests in each --quota-window above which it responds with 429. 0 for no quota.", min=0)
    ] = _DEFAULT.quota,
    quota_window: Annotated[
        float, option(_LIMITS, "Seconds after which the quota is full again.", min=0.001)
    ] = _DEFAULT.quota_window,
    quota_headers: Annotated[
        str, option(_LIMITS, "Form of the headers with the rest of the quota.", metavar="items|members|fields|x|none")
    ] = _DEFAULT.quota_headers,
    retry_after: Annotated[
        int, option(_LIMITS, "Seconds to wait that a 429 or 503 demands.", min=0)
    ] = _DEFAULT.retry_after,
    retry_after_format: Annotated[
        str, option(_LIMITS, "Form of Retry-After.", metavar="seconds|date|none")
    ] = _DEFAULT.retry_after_format,
    down: Annotated[
        str | None, option(_LIMITS, "An outage: each request ends like this.", metavar="503|reset|page|empty|404")
    ] = _DEFAULT.down,
    token: Annotated[str | None, option(_ACCESS, "401 without this bearer token.")] = _DEFAULT.token,
    basic: Annotated[
        str | None, option(_ACCESS, "401 without this user and password.", metavar="USER:PASSWORD")
    ] = _DEFAULT.basic,
    key: Annotated[str | None, option(_ACCESS, "401 without this header.", metavar="NAME: VALUE")] = _DEFAULT.key,
    client: Annotated[
        str | None, option(_ACCESS, "401 without a token from POST /token for this client.", metavar="ID:SECRET")
    ] = _DEFAULT.client,
    token_lifetime: Annotated[
        float, option(_ACCESS, "Seconds that such a token lasts.", metavar="N")
    ] = _DEFAULT.token_lifetime,
    token_latency: Annotated[
        float, option(_ACCESS, "Seconds until it is issued.", metavar="N")
    ] = _DEFAULT.token_latency,
    authority_down: Annotated[
        str | None, option(_ACCESS, "How POST /token fails.", metavar="503|401|reset|hang")
    ] = _DEFAULT.authority_down,
    tls_cert: Annotated[Path | None, option(_ACCESS, "Serve HTTPS with this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, option(_ACCESS, "Its private key, if it is in another file.")] = None,
    client_ca: Annotated[
        Path | None, option(_ACCESS, "Accept only clients with a certificate of this authority (PEM).")
    ] = None,
    updated_at: Annotated[
        str | None, option(_ORDERS, "The updated_at of every order, with a time zone.", metavar="RFC 3339")
    ] = None,
    currency: Annotated[
        str | None, option(_ORDERS, "The currency of every order. Defaults to GBP.", metavar="CODE")
    ] = _DEFAULT.currency,
    list_limit: Annotated[
        int, option(_ORDERS, "Maximum number of orders in one request to the list endpoint.", min=1)
    ] = _DEFAULT.list_limit,
    list_shape: Annotated[
        str, option(_ORDERS, "Answer of the list endpoint.", metavar="object|array")
    ] = _DEFAULT.list_shape,
    any_id: Annotated[
        bool, typer.Option("--any-id", help="Serve any ID, not only those bundled.", rich_help_panel=_ORDERS)
    ] = _DEFAULT.any_id,
    any_bytes: Annotated[
        int | None, option(_ORDERS, "Approximate length of their documents, in bytes.", min=1)
    ] = _DEFAULT.any_bytes,
    shape: Annotated[str | None, option(_SHOPS, "Serve a whole shop of this kind instead.", metavar="KIND")] = None,
    orders: Annotated[
        int | None, option(_SHOPS, "Number of its first orders. Defaults to 1,000.", metavar="N", min=0)
    ] = None,
    changes_per_second: Annotated[float, option(_SHOPS, "Orders that change by themselves.", min=0)] = 0.0,
    mode: Annotated[
        list[str] | None,
        option(
            _SHOPS,
            "How the shop deviates. Repeat for several. "
            + ". ".join(f"{name}: {effect}" for name, effect in described_modes().items())
            + ".",
            metavar="NAME=VALUE",
        ),
    ] = None,
    webhooks: Annotated[str | None, option(_SHOPS, "Send the changes to this URL.", metavar="URL")] = None,
    webhook_share: Annotated[float, option(_SHOPS, "Share of the changes that are sent.", min=0, max=1)] = 1.0,
    webhook_secret_file: Annotated[Path | None, option(_SHOPS, "Secret that signs webhooks.", metavar="FILE")] = None,
) -> None:
    """Run the simulated external API, until stopped.

    It serves 10,000 real orders at GET /orders/{id} and GET /orders?ids=a,b,c, with faults on demand.

    POST /orders with {"id": …} or {"ids": […]} is the same.

    With --shape, it serves a whole shop, with login, lists, limits and changes. Its kinds are shopify, shopify-rest, woocommerce,
    amazon, bigcommerce, magento and plain. Of the other options, a shop takes those for the address, --latency, --seed,
    --rate-limit, --rate-burst, --token, --client, --token-lifetime, --currency and certificates.

    Prints the URL template for INGEST_UPSTREAM_URL when it is ready, or the URL of the shop, and runs until SIGTERM or Ctrl-C.

    Everything but host, port, seed and certificates can be changed while it runs: GET, PUT and PATCH /behaviour take the
    same names with underscores. GET /stats returns counts, DELETE /stats resets them. PUT /orders/{id} replaces an
    order's document, DELETE removes it.

    Examples:
    `ingest upstream` responds immediately, on port 8081.

    `ingest upstream --port 0 --latency 0.1-0.2 --error-rate 0.01` fails sometimes, like most APIs.

    `ingest upstream --latency lognormal:0.12,0.4 --rate-limit 200 --retry-after-format date` throttles.

    `ingest upstream --latency 0.4 --capacity 400` takes longer with more than 400 concurrent requests.

    `ingest upstream --any-id` serves any number of orders, for a benchmark.

    `ingest upstream --shape woocommerce --orders 200 --changes-per-second 1` simulates a whole WooCommerce shop.

    `curl -X PATCH localhost:8081/behaviour -d '{"down": "503"}'` starts an outage.

    `curl -X PATCH localhost:8081/behaviour -d '{"down": null}'` ends it.
    """
    options = locals()
    if shape is not None or orders is not None or webhooks is not None or changes_per_second or mode:
        serve_shop(options)
        return
    fields = {name: options[name] for name in Behaviour.__struct_fields__}
    try:
        behaviour = changed(_DEFAULT, fields)
    except ValueError as error:
        raise ConfigError(_naming_options(str(error))) from error
    tls = server_tls(tls_cert, tls_key, client_ca)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(SimulatedApi(behaviour, host=host, port=port, seed=seed, tls=tls)))


def _naming_options(error: str) -> str:
    return re.sub(r"`\$\.(\w+)`", lambda field: f"--{field[1].replace('_', '-')}", error)


async def _serve(api: SimulatedApi) -> None:
    stop = asyncio.Event()
    stop_on_signals(lambda _: stop.set())
    async with api:
        gc.collect()
        gc.freeze()  # ten thousand orders that live as long as the process
        typer.echo(f"simulated external API ready, seed {api.seed}", err=True)
        typer.echo(api.url_template)
        await stop.wait()
    typer.echo(f"simulated external API stopped after {api.stats().requests} requests", err=True)
