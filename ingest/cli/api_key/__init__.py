"""`ingest api-key`: manages the keys of the HTTP API."""

COMMANDS = ("create", "list", "revoke")


def api_key() -> None:
    """Create, list and revoke the keys of the HTTP API.

    Examples:
    `ingest api-key create shop --scope enqueue --rate 100` creates a key, and prints it: the only time that it is
    shown.

    `ingest api-key list` lists the keys, with their names, IDs and scopes.

    `ingest api-key revoke shop` makes a key useless, within seconds and without a restart.

    The keys are in the file that INGEST_API_KEYS_FILE names.
    """
