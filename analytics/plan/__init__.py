"""What to decide about GPUs that many want: who waited and why, who should get which, what would fit, and when to order."""
