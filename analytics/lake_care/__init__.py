"""A service's work on the lake: merging agents' files, repairing, deleting expired data, and counting."""
