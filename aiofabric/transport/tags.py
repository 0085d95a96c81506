"""Tags: which of their bits a provider takes, and which go together (man page: fi_getinfo, mem_tag_format).

A format is a row of bits. Those above its highest 1 are the provider's: it ignores them, or uses them for itself, as
rxm with FI_COLLECTIVE does. There a message that is received under a tag with that bit ends the process: the provider
takes the receive's context for a collective's. Below, adjacent bits that are all 1 or all 0 are one field, which a mask
has all of, or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from ..info import Info

__all__ = ["TagFormat"]

# Since 2.0 small numbers name a format; as a pattern no provider has them. FI_TAG_BITS (0) is any 64 bits, FI_TAG_MPI
# and FI_TAG_CCL (1 and 2) have 8 bits that say what the message holds, above 32 that are matched.
_NAMED = {0: 0xAAAAAAAAAAAAAAAA, 1: 0xFF00000000, 2: 0xFF00000000}


class TagFormat(NamedTuple):
    """What tags and masks an endpoint has."""

    bits: int
    """How many, from the lowest, a program may use."""
    joined: int
    """Those that are in one field with the bit above them."""

    @classmethod
    def of(cls, info: Info) -> Self:
        """The format that an endpoint is opened with."""
        given = info.ep_attr.mem_tag_format
        pattern = _NAMED.get(given, given)
        bits = pattern.bit_length()
        return cls(bits, ~(pattern ^ pattern >> 1) & (1 << bits - 1) - 1)

    def check(self, tag: int, ignore: int = 0) -> None:
        """Raise ValueError for a tag, or a mask of bits to ignore, that the provider would not understand."""
        if (tag | ignore) >> self.bits:
            most = (1 << self.bits) - 1
            raise ValueError(
                f"a tag has {self.bits} bits and no sign here, unlike {tag:#x} with ignore={ignore:#x}; "
                f"the others are the provider's (ep_attr.mem_tag_format), and ignore={most:#x} takes any tag"
            )
        if (ignore ^ ignore >> 1) & self.joined:
            raise ValueError(
                f"ignore={ignore:#x} has a part of a field of the tag: ep_attr.mem_tag_format, which the hints asked "
                "for, joins bits into fields, of which a mask has all bits or none"
            )
