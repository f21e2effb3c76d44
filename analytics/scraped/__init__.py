"""What a site's metrics server already has, as rows of the lake: read raw, mapped by data, published as they come."""
