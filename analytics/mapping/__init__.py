"""Mappings from names of an exporter or tool to columns of the lake: one TOML file for each, and a site's own."""
