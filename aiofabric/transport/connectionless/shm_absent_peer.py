"""Peers over shared memory whose endpoints do not exist yet, or no more.

shm of 1.17 gives such a peer a place in its table that still counts as free (smr_map_add), so the next peer gets the
same place and the same number. A message to the one then went to the other. With 2.5, a message to an endpoint of the
same process that was added before it was opened crashed the process: the two were not introduced (shm_same_process.py).

So the provider never gets the name of an endpoint that does not exist. Its peer has a number of its own, for which the
provider has another name of the endpoint itself, a stand-in. Operations for the peer wait here. When the endpoint
exists, its name takes the number over. An endpoint has about 200 names for stand-ins; further absent peers get what the
provider gives them.

All this is done with functions of libfabric, so it is no workaround of the table `aiofabric.workarounds`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..._ffi import constants
from ...errors import FabricError, UnreachableError
from ..route import Route
from ..workarounds.shm_names import native_form, path_of, with_slashes

if TYPE_CHECKING:
    from ...address import Address
    from ...address_vector import AddressVector

__all__ = ["AbsentNumbers", "AbsentRoute"]

_NOBODY: int = constants.FI_ADDR_NOTAVAIL
# struct smr_region: SMR_VERSION, and of the early ones the process id, written last. Later ones wait for it themselves.
_VERSION, _PROCESS = 0, slice(4, 8)
_EARLY = range(1, 5)


class AbsentNumbers:
    """The numbers of absent peers in the address vector of one endpoint.

    Args:
        vector: the address vector.
        own: the name of the endpoint.
    """

    def __init__(self, vector: AddressVector, own: Address) -> None:
        self._vector = vector
        self._own = own
        self._addresses: dict[int, Address] = {}  # by number
        self._stand_ins: dict[int, int] = {}  # by number: how many slashes its stand-in has

    def reserve(self, address: Address) -> int | None:
        """A number for the peer if its endpoint does not exist; None if it does, or if no stand-in is left.

        Raises:
            FabricError: the address vector is full.
        """
        if _exists(address):
            return None
        try:
            number = self._insert_stand_in()
        except FabricError as error:
            if error.errno != constants.FI_EADDRINUSE:
                raise
            return None
        self._addresses[number] = address
        return number

    def settle(self, number: int) -> bool:
        """Return whether the endpoint of the peer exists; then the number is really its own."""
        address = self._addresses.get(number)
        if address is None:
            return True
        if not _exists(address):
            return False
        fillers: list[int] = []
        try:
            try:
                while not fillers or fillers[-1] < number:  # the provider gives the lowest free number
                    fillers.append(self._insert_stand_in())
            except FabricError as error:  # if the vector is full, no other number is free
                if error.errno == constants.FI_EADDRINUSE:  # later, when other peers exist
                    return False
            self._remove(number)
            if self._vector.claim(address) == number:
                del self._addresses[number]
                return True
            self._insert_stand_in()  # its endpoint closed just now
            return False
        finally:
            for filler in fillers:
                self._remove(filler)

    def drop(self, number: int) -> bool:
        """Free the number of an absent peer; return whether it was one."""
        if self._addresses.pop(number, None) is None:
            return False
        self._remove(number)
        return True

    def check_receivable(self, number: int) -> None:
        """Raise if no receive can name the peer yet."""
        if not self.settle(number):
            detail = "The endpoint does not exist yet, and until then no receive can name it"
            raise UnreachableError(constants.FI_EHOSTUNREACH, "recv", peer=self._addresses[number], detail=detail)

    def _insert_stand_in(self) -> int:
        used = set(self._stand_ins.values())
        slashes = next(count for count in range(1, len(used) + 2) if count not in used)
        # The provider has no endpoint in its list under this name, and finds it by its file, as one of another process.
        form = with_slashes(native_form(self._own, is_open=False), slashes)
        number = self._vector.insert_form(form, form)
        if number == _NOBODY:
            raise FabricError(constants.FI_ENOSPC, "fi_av_insert", detail="The address vector is full")
        self._stand_ins[number] = slashes
        return number

    def _remove(self, number: int) -> None:
        del self._stand_ins[number]
        self._vector.remove_number(number)


class AbsentRoute(Route):
    """The route to a peer that may not exist: nothing is posted before it does."""

    __slots__ = ("_absent", "_limit")
    direct = False

    def __init__(self, handle: Any, peer: int, name: object = None) -> None:
        super().__init__(handle, peer, name)
        self._absent: AbsentNumbers = handle.vector.absent
        self._limit = self.limit
        self.limit = 0
        self.inject_size = -1  # `inject` leaves it to `post`
        self.refused = True  # so that it is tried again, after growing delays

    def retry(self) -> int:
        if not self.limit and self._absent.settle(self.peer):
            self.limit = self._limit
        moved = super().retry()
        self.refused |= not self.limit
        return moved


def _exists(address: Address) -> bool:
    """Whether the memory of the endpoint is there, and complete."""
    try:
        with path_of(address).open("rb") as file:
            start = os.pread(file.fileno(), _PROCESS.stop, 0)
    except (OSError, ValueError):
        return False
    return any(start[_PROCESS] if start[:1] and start[_VERSION] in _EARLY else start[:1])
