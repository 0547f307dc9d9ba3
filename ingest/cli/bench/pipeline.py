"""`ingest bench pipeline`: the service as a user runs it, beside contenders, against a simulated external API."""

from typing import Annotated, Any, Literal

import typer

from ingest.cli.bench.output import AsJson, Output, command_line, print_result

EPILOG = """
Examples:

`ingest bench pipeline --vs bare --runs 5` measures 10,000 orders, 100-200 ms and 500 in flight, beside a bare loop.

`ingest bench pipeline --latency 0-0.002 --in-flight 200 --processes 1 --orders 20000` looks for the service's own limit.

`ingest bench pipeline --rate 400` has orders arrive like customers, for latency end to end.

`ingest bench pipeline --kill-at 0.4` kills a worker process on the way; `--kill command` one of two whole commands.

`ingest bench pipeline --sweep in-flight=50,100,200,400,800 --output results` draws the knee.
"""

_WORK = "What is to be done"
_WHO = "Who does it"
_TROUBLE = "What goes wrong"
_WHERE = "Where"


def _option(panel: str, help_text: str, **settings: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=panel, **settings)


def pipeline(  # noqa: PLR0913  each parameter is one option
    *,
    orders: Annotated[int, _option(_WORK, "Orders to enqueue.", min=1, max=9_999_999)] = 10_000,
    latency: Annotated[str, _option(_WORK, "Of the external API, as `ingest upstream` takes it.")] = "0.1-0.2",
    order_bytes: Annotated[
        int,
        _option(_WORK, "About how long an order's document is; 0: real orders as they come, 2 KB in the mean.", min=0),
    ] = 1_000,
    rate: Annotated[float, _option(_WORK, "Orders per second, arriving at random; 0: all at once.", min=0)] = 0.0,
    in_flight: Annotated[int, _option(_WHO, "Orders in flight, over all processes.", min=1, max=10_000)] = 500,
    processes: Annotated[int, _option(_WHO, "Worker processes of the service.", min=1, max=64)] = 2,
    client: Annotated[
        Literal["aiohttp", "curl"] | None, _option(_WHO, "INGEST_UPSTREAM_CLIENT of the service.", show_default=False)
    ] = None,
    batch_rows: Annotated[
        int | None, _option(_WHO, "INGEST_BATCH_ROWS of the service.", min=1, max=5_000, show_default=False)
    ] = None,
    vs: Annotated[
        list[str] | None, _option(_WHO, "Run this one, too; may be given more than once.", metavar="bare")
    ] = None,
    runs: Annotated[int, _option(_WHO, "Runs of each contender, in turn.", min=1, max=100)] = 1,
    sweep: Annotated[
        str | None,
        _option(
            _WHO,
            "One run for each value of an option: in-flight, processes, latency, batch-rows or rate.",
            metavar="OPTION=VALUE,VALUE,...",
        ),
    ] = None,
    kill_at: Annotated[
        float | None, _option(_TROUBLE, "Kill a worker when this share of the orders is stored.", metavar="SHARE")
    ] = None,
    kill: Annotated[
        Literal["worker", "command"],
        _option(_TROUBLE, "One worker process, which comes back; or one of two whole commands, which does not."),
    ] = "worker",
    api_limit: Annotated[int, _option(_TROUBLE, "429 above so many requests at a time; 0: never.", min=0)] = 0,
    api_retry_after: Annotated[int, _option(_TROUBLE, "Seconds that a 429 tells to wait.", min=0)] = 1,
    redis_url: Annotated[
        str | None, _option(_WHERE, "A Redis to use instead of the embedded one; the queue is 'ingest-bench'.")
    ] = None,
    postgres_dsn: Annotated[
        str | None, _option(_WHERE, "A PostgreSQL to use instead; its table 'orders' has to be empty, or missing.")
    ] = None,
    seed: Annotated[int, _option(_WORK, "Of arrivals and latencies.", min=0)] = 1,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure the service, run by its own commands on real servers, from the first request to the last commit.

    Says how many orders it stores per second and what each costs in CPU, memory and Redis round trips, how long one takes,
    and what became of every single one.
    """
    from ingest.bench.pipeline.plan import RIVALS, Plan
    from ingest.bench.pipeline.session import compare, run_sweep
    from ingest.bench.pipeline.sweep import Sweep
    from ingest.bench.stage import Servers
    from ingest.domain.errors import ConfigError

    if kill_at is not None and not 0 < kill_at < 1:
        raise ConfigError("--kill-at is a share of the orders, above 0 and below 1")
    if kill_at is None and kill != "worker":
        raise ConfigError("--kill goes with --kill-at")
    if kill_at is not None and vs:
        raise ConfigError("--kill-at and --vs contradict each other: a bare loop that is killed never finishes")
    if api_limit and vs:
        raise ConfigError("--api-limit and --vs contradict each other: a bare loop does not wait as it is told")
    if unknown := set(vs or []) - set(RIVALS):
        raise ConfigError(f"--vs {unknown.pop()}: choose {' or '.join(RIVALS)}")
    if sweep and (vs or kill_at is not None):
        raise ConfigError("--sweep goes neither with --vs nor with --kill-at")
    plan = Plan(
        orders=orders,
        latency=latency,
        order_bytes=order_bytes,
        in_flight=in_flight,
        processes=processes,
        rate=rate,
        kill_at=kill_at,
        kill=kill,
        client=client,
        batch_rows=batch_rows,
        api_limit=api_limit,
        api_retry_after=api_retry_after,
        seed=seed,
    )
    servers = Servers(redis_url, postgres_dsn)
    if sweep:
        result = run_sweep(plan, Sweep.parse(sweep, plan), runs=runs, servers=servers, command=command_line())
    else:
        rivals = list(dict.fromkeys(vs or []))
        result = compare(plan, rivals, runs=runs, servers=servers, command=command_line())
    print_result(result, output, as_json=as_json)
