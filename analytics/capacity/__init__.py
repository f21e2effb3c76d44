"""How many GPUs are needed at once, when, and how many could go."""
