"""The package is built, installed and run as a new user does it."""
