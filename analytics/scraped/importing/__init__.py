"""Brings a metrics server's history into the lake: planned in chunks, read in parallel, published and noted as it comes."""
