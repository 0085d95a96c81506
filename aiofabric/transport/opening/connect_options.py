"""ConnectOptions: the arguments of `connect` in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...cm.reservation import Reservation
    from ...domain import Domain
    from ...info import Hints, Info
    from .options import EndpointOptions

__all__ = ["ConnectOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The checked arguments of `connect`, without the address."""

    provider: str | None
    domain: Domain | None
    hints: Hints | None
    info: Info | None
    endpoint: EndpointOptions
    param: bytes
    reservation: Reservation | None
    raw: bool
