"""Recommendations made of findings: the review of a window, the life of findings, and what people did about them."""
