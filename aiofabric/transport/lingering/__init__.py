"""Closed endpoints whose native half stays open for a while: until the reads have ended that the provider cannot end.

May import: ``route``, ``interfaces``, and the floors below.
"""
