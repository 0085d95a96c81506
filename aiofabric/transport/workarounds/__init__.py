"""Workarounds of defects in providers that data transfer meets; `aiofabric.workarounds` lists them.

May import: ``buffers``, ``handle``, ``route``, ``messages`` and everything below ``transport``.
"""
