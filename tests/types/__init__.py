"""The errors that type checkers report for a user's program."""
