"""Workarounds for provider defects in data transfer; `aiofabric.workarounds` lists them.

May import: ``buffers``, ``handle``, ``route``, ``messages`` and everything below ``transport``.
"""
