"""fallow judged by others: what was concluded against labels that somebody else wrote."""
