"""`make attack`: what was broken once, tried again. Bounded, over loopback, on files of its own."""
