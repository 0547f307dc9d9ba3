"""The settings of `ingest api` and `ingest relay`; part of `Settings`."""

from pydantic_settings import BaseSettings


class ApiSettings(BaseSettings):
    """Settings that only the HTTP API and the relay use."""
