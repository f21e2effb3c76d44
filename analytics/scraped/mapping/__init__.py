"""Which series of which exporter is which column of the lake: one TOML file for each exporter, and a site's own."""
