"""Connectionless endpoints (FI_EP_RDM, FI_EP_DGRAM), scalable endpoints, multicast, collectives, aliases.

May import: ``opening``, ``workarounds`` and what these may import.
"""
