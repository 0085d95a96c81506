"""Workarounds for provider defects in data transfer. `aiofabric.workarounds` lists those that go below libfabric.

May import: ``buffers``, ``handle``, ``route``, ``messages`` and everything below ``transport``.
"""
