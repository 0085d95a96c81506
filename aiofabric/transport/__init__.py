"""Floor 4: endpoints and data transfer."""
