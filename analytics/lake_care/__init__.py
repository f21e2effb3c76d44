"""What a service does for the lake: merging what agents left, mending, deleting what has expired, and counting."""
