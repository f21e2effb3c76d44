"""Data of a site's metrics server as rows of the lake: read raw, mapped by data, published as they come."""
