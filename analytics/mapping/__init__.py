"""Which name of which exporter or tool is which column of the lake: one TOML file for each, and a site's own."""
