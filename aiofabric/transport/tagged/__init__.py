"""Tagged messages: sending and receiving them, peeking at them, and claiming them.

May import: ``messages``, ``endpoint`` and what these may import.
"""
