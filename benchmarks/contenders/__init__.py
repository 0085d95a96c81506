"""One file for each way to communicate; connection.py describes the interface that each of them implements."""
