"""What GPU time costs and who pays for it: prices, owners, energy, and sums that reconcile to the cent."""
