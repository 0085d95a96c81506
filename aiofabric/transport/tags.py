"""Tags: which of their bits a provider takes, and which bits form one field (man page: fi_getinfo, mem_tag_format).

A format is a pattern of bits. The bits above its highest 1 belong to the provider: it ignores or uses them. rxm with
FI_COLLECTIVE uses the highest: receiving a message under a tag with that bit ends the process, because the provider
takes the receive's context for a collective's. In the bits below, adjacent bits of equal value form one field. A mask
must contain all bits of a field or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from ..info import Info

__all__ = ["TagFormat"]

# Since 2.0 small numbers name a format; no provider has them as a pattern. FI_TAG_BITS (0) means any 64 bits.
# FI_TAG_MPI
# and FI_TAG_CCL (1 and 2) have 8 bits for the kind of message, above 32 bits that are matched.
_NAMED = {0: 0xAAAAAAAAAAAAAAAA, 1: 0xFF00000000, 2: 0xFF00000000}

_ALL = 2**64 - 1  # one field of 64 bits; opx matches each bit by itself (fi_opx.h, FI_OPX_MEM_TAG_FORMAT)


class TagFormat(NamedTuple):
    """The bits that tags and masks of an endpoint may have."""

    bits: int
    """How many of the lowest bits a program may use."""
    joined: int
    """Bits that belong to the same field as the bit above them."""

    @classmethod
    def of(cls, info: Info) -> Self:
        """The format that an endpoint is opened with."""
        given = info.ep_attr.mem_tag_format
        any_mask = given == _ALL and info.fabric_attr.prov_name == "opx"
        pattern = _NAMED[0] if any_mask else _NAMED.get(given, given)
        bits = pattern.bit_length()
        return cls(bits, ~(pattern ^ pattern >> 1) & (1 << bits - 1) - 1)

    def check(self, tag: int, ignore: int = 0) -> None:
        """Raise ValueError for a tag, or a mask of bits to ignore, that the provider does not support."""
        if (tag | ignore) >> self.bits:
            most = (1 << self.bits) - 1
            raise ValueError(
                f"a tag has {self.bits} bits, and must not be negative, unlike {tag:#x} with ignore={ignore:#x}; "
                f"the provider uses the other bits (ep_attr.mem_tag_format). ignore={most:#x} takes any tag"
            )
        if (ignore ^ ignore >> 1) & self.joined:
            raise ValueError(
                f"ignore={ignore:#x} has a part of a field of the tag: ep_attr.mem_tag_format, which the hints asked "
                "for, joins bits into fields; ignore must have all bits of a field, or none"
            )
