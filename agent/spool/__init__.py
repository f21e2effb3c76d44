"""Rows on local disk from the moment they exist until the lake has surely kept them."""
