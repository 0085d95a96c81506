"""ConnectOptions: the arguments of `connect` in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...cm.reservation import Reservation
    from ...domain import Domain
    from ...info import Hints, Info
    from .options import EndpointOptions

__all__ = ["ConnectOptions", "any_provider"]


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
    interface: str | None = None

    @property
    def any_provider(self) -> bool:
        """Whether the program left the choice of the provider to aiofabric."""
        return self.reservation is None and any_provider(self.provider, self.domain, self.hints, self.info)


def any_provider(provider: str | None, domain: Domain | None, hints: Hints | None, info: Info | None) -> bool:
    """Whether these arguments leave the choice of the provider to aiofabric."""
    named = provider or (hints is not None and hints.fabric_attr.prov_name)
    return not named and domain is None and info is None
