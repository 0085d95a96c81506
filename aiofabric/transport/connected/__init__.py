"""Connected endpoints (FI_EP_MSG), their orderly close, and the contexts that they may share.

May import: ``opening``, ``workarounds`` and what these may import.
"""
