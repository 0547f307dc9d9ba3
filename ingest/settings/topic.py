"""What the settings of each topic are declared with."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Topic(BaseSettings):
    """The settings of one topic, a part of `Settings`: only that gets a validator, which takes milliseconds to build."""

    model_config = SettingsConfigDict(defer_build=True)
