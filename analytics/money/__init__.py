"""The cost of GPU time and who pays it: prices, owners, energy, and sums that reconcile to the cent."""
