"""Whether requests may be sent to the external API, decided from evidence."""
