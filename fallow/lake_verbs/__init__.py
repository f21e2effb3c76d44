"""`fallow lake`: what is done to a lake as a whole, one module per verb."""
