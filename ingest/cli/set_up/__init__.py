"""Commands that configure the service and check its set-up."""
