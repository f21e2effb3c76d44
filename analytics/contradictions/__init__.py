"""Values that cannot be true together: the verdicts, their sentences, and the verdicts over rows of an import."""
