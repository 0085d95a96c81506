"""Opening: the Info that fits, the options of an endpoint, and what endpoints of one loop share.

May import: ``messages``, ``rma``, ``tagged``, ``endpoint`` and what these may import.
"""
