"""The base class of the settings of each topic."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Topic(BaseSettings):
    """The settings of one topic. Only `Settings` builds a validator, which takes milliseconds."""

    model_config = SettingsConfigDict(defer_build=True)
