"""Opening: choice of the Info, the options of an endpoint, and objects that endpoints of one loop share.

May import: ``messages``, ``rma``, ``tagged``, ``endpoint`` and what these may import.
"""
