"""Code that reaches below libfabric's interface: it works on the kernel's sockets that a provider has opened.

May import: ``queue``, ``requests`` and what they may import.
"""
