"""Built, installed and run as a stranger does it."""
