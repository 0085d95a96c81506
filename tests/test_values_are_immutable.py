"""Options, statistics and values on the wire are immutable, and have no dictionary."""

import dataclasses
import importlib
import pkgutil

import pytest

from aiofabric.transport.opening.connect_options import ConnectOptions
from aiofabric.transport.opening.options import EndpointOptions

ROOMS = ("cq", "cm", "transport", "channel", "streams")
FROM_ANYIO = ["FabricConnectable"]  # anyio.abc.ByteStreamConnectable has a dictionary


def dataclasses_of(room: str) -> dict[str, type]:
    """The dataclasses that are defined in a package."""
    package = importlib.import_module(f"aiofabric.{room}")
    found: dict[str, type] = {}
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(each.name)
        for kind in vars(module).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == each.name:
                found[kind.__qualname__] = kind
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_dataclasses_are_frozen_and_have_slots(room: str) -> None:
    for name, kind in dataclasses_of(room).items():
        if name not in FROM_ANYIO:
            assert kind.__dataclass_params__.frozen, name  # type: ignore[attr-defined]
            assert "__slots__" in vars(kind), name


def test_options_are_given_by_name() -> None:
    for kind in (EndpointOptions, ConnectOptions):
        assert all(field.kw_only for field in dataclasses.fields(kind))
