"""Many hosts' agents through many days by clocks of their own: what was to happen is known, and compared with the lake."""
