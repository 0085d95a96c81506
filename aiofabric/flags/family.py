"""Base classes of the families: the compiler fills in the values; names are spelled as in libfabric."""

from __future__ import annotations

from enum import EnumType, IntEnum, IntFlag
from typing import Any, Self

from .._ffi import constants


class _Absent:
    """Placeholder of a member that the headers lack; a descriptor, so that enum skips it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> int:
        raise AttributeError(self.name)


class _Family(EnumType):
    def __getattr__(cls, name: str) -> Any:
        if isinstance(absent := vars(cls).get(name), _Absent):
            version = f"{constants.FI_MAJOR_VERSION}.{constants.FI_MINOR_VERSION}"
            raise AttributeError(
                f"{absent.name} is not part of libfabric {version}, with whose headers this aiofabric was "
                "built; build it on a libfabric that has it"
            )
        raise AttributeError(f"{cls.__name__} has no {name}")


def optional(name: str) -> int:
    """Return a constant that some libfabric versions lack, for use in a class body."""
    value: int = getattr(constants, name)
    return value if value != constants.AIOFABRIC_ABSENT else _Absent(name)  # type: ignore[return-value]


class Flags(IntFlag, metaclass=_Family):
    """Bits that combine with ``|``. Unknown bits, of a newer library or of a provider, are kept.

    ``str()`` gives libfabric's own spelling: ``FI_MSG | FI_RMA``.
    """

    _prefix: str

    def __init_subclass__(cls, *, prefix: str = "FI_", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._prefix = prefix

    def _words(self, prefix: str) -> list[str]:
        known = [f"{prefix}{member.name}" for member in self]
        rest = int(self) & ~sum(int(member) for member in type(self))
        return known + [f"{rest:#x}"] * bool(rest)

    def __str__(self) -> str:
        return " | ".join(self._words(self._prefix)) or "0"

    def __repr__(self) -> str:
        names = f".{'|'.join(self._words(''))}" if list(self) else ""
        return f"<{type(self).__name__}{names}: {int(self):{'#x' if self else 'd'}}>"

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)


class Choice(IntEnum, metaclass=_Family):
    """One value out of several. An unknown value, of a newer library or of a provider, is accepted.

    ``str()`` gives libfabric's own spelling: ``FI_EP_MSG``.
    """

    _prefix: str

    def __init_subclass__(cls, *, prefix: str = "FI_", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._prefix = prefix

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value:#x}"
        member._value_ = value
        return member

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # By value: Python 3.11.2 (Debian's) pickles by name, and an unknown value has no name there.
        return type(self), (int(self),)

    def __str__(self) -> str:
        return f"{self._prefix}{self.name}"

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)
