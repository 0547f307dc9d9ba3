# One image for all commands: `docker run order-ingest worker`, `… migrate`, `… enqueue`.
#
#   docker build --tag order-ingest .
#   docker build --build-arg PYTHON_IMAGE=registry.example/python:3.13-slim .        # another base image
#   docker build --secret id=pip.conf,src=$HOME/.config/pip/pip.conf .               # your own package index, not stored

ARG PYTHON_IMAGE=python:3.13-slim

# ---- Build: a virtual environment with the locked packages and the service ----

FROM ${PYTHON_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /src

# All packages are installed from wheels; pip and the build tools remain in this stage.
RUN python -m venv /opt/build && python -m venv --without-pip /opt/ingest

COPY requirements-build.lock requirements.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/build/bin/pip install --require-hashes --requirement requirements-build.lock \
    && /opt/build/bin/pip --python /opt/ingest/bin/python install --only-binary :all: --require-hashes --requirement requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY ingest ingest
RUN /opt/build/bin/python -m hatchling build --target wheel --directory /src/dist \
    && /opt/build/bin/pip --python /opt/ingest/bin/python install --no-deps --no-index dist/*.whl


# ---- Runtime ----

FROM ${PYTHON_IMAGE}

LABEL org.opencontainers.image.title="order-ingest" \
      org.opencontainers.image.description="Order ingestion on Redis Streams consumer groups" \
      org.opencontainers.image.licenses="Apache-2.0"

# With a fixed user ID, you can assign mounted secrets and volumes to the user.
RUN groupadd --gid 10001 ingest \
    && useradd --uid 10001 --gid ingest --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin ingest

COPY --from=build /opt/ingest /opt/ingest

# Python and the service write no files. Prometheus reaches /metrics from another container, and logs are JSON.
ENV PATH=/opt/ingest/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    INGEST_METRICS_HOST=0.0.0.0 \
    INGEST_LOG_FORMAT=json

USER 10001:10001
# The service reads `.env` here if you mount one.
WORKDIR /opt/ingest
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 CMD ["ingest", "health"]
ENTRYPOINT ["ingest"]
CMD ["--help"]
