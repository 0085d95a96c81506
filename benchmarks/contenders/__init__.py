"""One file per way to talk; connection.py says what each of them implements."""
