"""What type checkers say to a user's program."""
