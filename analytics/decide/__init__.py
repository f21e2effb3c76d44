"""What becomes of findings: the review of a window, their life over weeks, and what people did about them."""
