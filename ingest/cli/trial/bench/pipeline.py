"""`ingest bench pipeline`: measures the service as a user runs it, against a simulated external API."""

from functools import partial
from typing import Annotated

from ingest.bench.pipeline.plan import GO, GO_JSON, RIVALS, Plan
from ingest.cli.field_options import with_fields_of
from ingest.cli.options import option
from ingest.cli.trial.bench.output import AsJson, Output, publish

_CONTENDERS = "Contenders"
_SERVERS = "Servers"


@with_fields_of(Plan)
def pipeline(
    *,
    plan: Plan,
    vs: Annotated[
        list[str] | None,
        option(
            _CONTENDERS,
            "Another contender: a bare loop in Python, or in Go, which needs a Go toolchain. Repeatable.",
            metavar="bare|go",
        ),
    ] = None,
    runs: Annotated[int, option(_CONTENDERS, "Runs of each contender, in turn.", min=1, max=100)] = 1,
    sweep: Annotated[
        str | None,
        option(
            _CONTENDERS,
            "One run for each value of an option: in-flight, processes, latency, batch-rows or rate.",
            metavar="OPTION=VALUE,VALUE,...",
        ),
    ] = None,
    redis_url: Annotated[
        str | None, option(_SERVERS, "A Redis to use instead of the embedded one. The queue is 'ingest-bench'.")
    ] = None,
    postgres_dsn: Annotated[
        str | None, option(_SERVERS, "A PostgreSQL to use instead. Its table 'orders' has to be empty, or missing.")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure whole workers, from request to commit.

    They are run by their own commands on real servers.

    Reports orders per second, CPU, memory and Redis round trips per order, latency, and what became of every order.

    Examples:
    `ingest bench pipeline --vs bare --runs 5` measures 10,000 orders, 100-200 ms and 500 in flight, and a bare loop
    for comparison.

    `ingest bench pipeline --latency 0-0.002 --in-flight 200 --processes 1 --orders 20000` finds the service's own
    limit.

    `ingest bench pipeline --tls --vs bare,go` measures over HTTPS, and compares with bare loops in Python and in Go.

    `ingest bench pipeline --rate 400` lets orders arrive at random, for end-to-end latency.

    `ingest bench pipeline --kill-at 0.4` kills a worker process during the run. `--kill command` kills one of two
    whole commands.

    `ingest bench pipeline --sweep in-flight=50,100,200,400,800 --output results` charts throughput and latency, and
    marks how many orders in flight are enough.
    """
    from ingest.bench.pipeline.compare import compare, run_sweep
    from ingest.bench.pipeline.go_build import check_toolchain
    from ingest.bench.pipeline.sweep import Sweep
    from ingest.bench.stage import Servers
    from ingest.domain.errors import ConfigError
    from ingest.settings.urls import require_known_options, require_scheme

    kills, rivals = plan.kill_at is not None, list(dict.fromkeys(name for text in vs or [] for name in text.split(",")))
    unknown = next((name for name in rivals if name not in RIVALS), None)
    for is_wrong, problem in (
        (kills and not 0 < (plan.kill_at or 0) < 1, "--kill-at is a share of the orders, above 0 and below 1"),
        (not kills and plan.kill != "worker", "--kill goes with --kill-at"),
        (kills and vs, "--kill-at and --vs exclude each other: a bare loop that is killed never finishes"),
        (plan.api_limit and vs, "--api-limit and --vs exclude each other: a bare loop ignores Retry-After"),
        (unknown, f"--vs {unknown}: choose {' or '.join(RIVALS)}"),
        (sweep and (vs or kills), "--sweep goes neither with --vs nor with --kill-at"),
    ):
        if is_wrong:
            raise ConfigError(problem)
    if redis_url is not None:
        try:
            require_scheme(redis_url, ("redis", "rediss", "unix"), "redis://host:6379/0")
            require_known_options(redis_url)
        except ValueError as error:
            raise ConfigError(f"--redis-url {error}") from None
    if {GO, GO_JSON} & {*rivals}:
        check_toolchain()
    servers = Servers(redis_url, postgres_dsn)
    bench = partial(run_sweep, plan, Sweep.parse(sweep, plan)) if sweep else partial(compare, plan, rivals)
    publish(partial(bench, runs=runs, servers=servers), output, as_json=as_json)
