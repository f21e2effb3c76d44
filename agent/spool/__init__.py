"""The spool: rows on local disk from the moment they exist until the lake has confirmed them."""
