"""Built, installed and run as a newcomer does it."""
