"""Where the documentation is published, for help texts: an installed command has no `docs` folder beside it.

It is the address of `[project.urls]` in pyproject.toml, and a unit test compares the two.
"""

DOCUMENTATION = "https://order-ingest.example/docs"
