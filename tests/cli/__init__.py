"""The command line, run in processes of its own, as users run it."""
