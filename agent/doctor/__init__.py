"""`fallow doctor`: why the driver, the agent or a CUDA program does not work on this host, and what to type next."""
