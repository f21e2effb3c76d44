"""Plans for scarce GPUs: who waited and why, which team should get which, what would fit, and when to order."""
