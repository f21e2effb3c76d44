"""`fallow top`: a live view of one host's GPUs in the terminal, with or without a running agent."""
