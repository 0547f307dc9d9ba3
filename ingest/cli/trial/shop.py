"""`ingest upstream --shape KIND`: runs a whole simulated shop as a separate process."""

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import typer
import uvloop

from ingest.domain.errors import ConfigError
from ingest.lab.shops.shop_modes import parsed_modes
from ingest.lab.upstream import Behaviour
from ingest.lab.upstream.tls import server_tls
from ingest.process.lifecycle import stop_on_signals

_CHOSEN = "currency"  # a shop takes it, but cannot change it while it runs
_OTHER = "down"  # a field of a shop with another meaning


def serve_shop(options: Mapping[str, Any]) -> None:
    """Run the shop until SIGTERM or Ctrl-C.

    Args:
        options: all options of `ingest upstream`, by name.

    Raises:
        ConfigError: an option does not apply to a shop, or has an invalid value.
    """
    from ingest.lab.shops.shop_behaviour import ShopBehaviour
    from ingest.lab.shops.simulated_shop import DEFAULT_ORDERS, KINDS, SimulatedShop

    name = options["shape"]
    if name not in KINDS:
        raise ConfigError(f"a whole shop needs --shape: choose {', '.join(KINDS)}")
    default, fields = Behaviour(), ShopBehaviour.__struct_fields__
    for unused in Behaviour.__struct_fields__:
        is_taken = unused == _CHOSEN or (unused in fields and unused != _OTHER)
        if not is_taken and options[unused] != getattr(default, unused):
            raise ConfigError(f"--{unused.replace('_', '-')} does not apply to a whole shop")
    changes: dict[str, object] = {
        field: options[field]
        for field in fields
        if field in options and options[field] != getattr(default, field, None)
    }
    secret_file = options["webhook_secret_file"]
    try:
        changes.update(parsed_modes(options["mode"] or ()))
        if secret_file is not None:
            changes["webhook_secret"] = secret_file.read_text(encoding="utf-8").strip()
        shop = SimulatedShop(
            name,
            orders=DEFAULT_ORDERS if options["orders"] is None else options["orders"],
            changes=changes,
            currency=options["currency"] or "EUR",
            host=options["host"],
            port=options["port"],
            seed=options["seed"],
            tls=server_tls(options["tls_cert"], options["tls_key"], options["client_ca"]),
        )
    except OSError as error:
        raise ConfigError(f"--webhook-secret-file: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(shop))


async def _serve(shop: Any) -> None:
    stop = asyncio.Event()
    stop_on_signals(lambda _: stop.set())
    async with shop:
        gc.collect()
        gc.freeze()
        first, last = shop.kind.order_id(1), shop.kind.order_id(shop.state.last)
        typer.echo(f"simulated shop ready, orders {first} to {last}, seed {shop.seed}", err=True)
        typer.echo(shop.base_url)
        await stop.wait()
    typer.echo(f"simulated shop stopped after {shop.state.counts['requests']} requests", err=True)
