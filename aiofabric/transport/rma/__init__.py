"""Memory of peers: reading and writing it, atomics, events of remote writes, and triggered operations.

May import: ``messages`` and what that may import.
"""
