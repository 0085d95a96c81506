"""Connected endpoints (FI_EP_MSG) and their orderly close.

May import: ``opening``, ``workarounds`` and what these may import.
"""
