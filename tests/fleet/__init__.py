"""Many hosts' agents through many days by clocks of their own: the expected outcome, compared with the lake."""
