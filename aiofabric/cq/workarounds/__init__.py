"""Workarounds of defects in providers that completions show.

May import: ``submission``, ``source`` and what they may import.
"""
