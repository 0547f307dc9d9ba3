"""Client of the external API: fetches order documents and classifies faults."""
