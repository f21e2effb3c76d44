"""What the same jobs would have met on another fleet, or under another policy: replayed event by event."""
