"""Segments: rxm sends messages of 16 to 128 KiB in several pieces.

rxm of 2.x crashes if a connection ends when only some pieces have arrived (rxm_conn.c, rxm_close_conn: their buffers
are released twice). That of 1.x never returns then: it takes the message out of the wrong list, and reads the other
one until it is empty. Over tcp, 1.x uses no segments. rxm reads the limit from the environment each time an endpoint is
opened, so the variable is set before the first one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...features import Quirk, quirks
from ...workarounds import is_on

if TYPE_CHECKING:
    from ...info import Info

__all__ = ["send_in_one_piece"]

_VARIABLE = "FI_OFI_RXM_SAR_LIMIT"  # rxm's limit for segmentation and reassembly, in bytes


def send_in_one_piece(info: Info) -> None:
    """Let the endpoint that is about to be opened use no segments, unless the program has set a limit."""
    if Quirk.SEGMENTS_CRASH in quirks(info) and is_on("environment"):
        os.environ.setdefault(_VARIABLE, "0")
