"""`ingest upstream`: runs the simulated external API as a separate process."""

import asyncio
import gc
import re
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from msgspec.structs import asdict

from ingest.cli.field_options import with_fields_of
from ingest.cli.options import option
from ingest.cli.trial.shop import serve_shop
from ingest.domain.errors import ConfigError
from ingest.lab.shops.shop_modes import described_modes
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.behaviour import ACCESS, FAULTS, changed
from ingest.lab.upstream.tls import server_tls
from ingest.process.lifecycle import stop_on_signals

_LISTENING = "Address"
_SHOPS = "Whole shops"


def _behaviour(**fields: object) -> Behaviour:
    try:
        return changed(Behaviour(), fields)
    except ValueError as error:
        raise ConfigError(_naming_options(str(error))) from error


@with_fields_of(Behaviour, _behaviour)
def upstream(  # noqa: PLR0913  each parameter is one option
    *,
    host: Annotated[str, option(_LISTENING, "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option(_LISTENING, "Port. 0 selects a free one.", min=0, max=65535)] = 8081,
    behaviour: Behaviour,
    seed: Annotated[
        int | None, option(FAULTS, "Seed of the random generator. Defaults to a random one.", metavar="N")
    ] = None,
    tls_cert: Annotated[Path | None, option(ACCESS, "Serve HTTPS with this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, option(ACCESS, "Its private key, if it is in another file.")] = None,
    client_ca: Annotated[
        Path | None, option(ACCESS, "Accept only clients with a certificate of this authority (PEM).")
    ] = None,
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
    options = {**asdict(behaviour), **locals()}
    if shape is not None or orders is not None or webhooks is not None or changes_per_second or mode:
        serve_shop(options)
        return
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
