"""A folder for PYTHONPATH, from which Python imports `sitecustomize` when it starts."""
