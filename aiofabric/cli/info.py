"""The offers of this machine's providers, best first, as fi_getinfo(3) returns them.

A filter keeps offers that have at least the given value. Names may be spelled as in libfabric or short: FI_EP_RDM or
rdm.
"""

from __future__ import annotations

import json
import socket
import sys
import textwrap
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aiofabric.address import Address
from aiofabric.cli.table import DIM, on_terminal, paint, table, width
from aiofabric.cli.unsupported import UsageError, check_provider, port, unmet
from aiofabric.errors import NoProviderError
from aiofabric.flags import AddressFormat, Caps, Choice, EndpointType, Flags, GetInfoFlags, Mode
from aiofabric.info import (
    DomainAttr,
    EpAttr,
    FabricAttr,
    Hints,
    Info,
    Version,
    getinfo,
    library_path,
    library_version,
    parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["configure", "run"]

_ANY_NAME = ("shm", "sm2")  # providers whose nodes have names of any kind
_FLAGS = {
    "provider": "-p",
    "fabric": "-f",
    "domain": "-d",
    "ep_type": "-t",
    "caps": "-c",
    "mode": "-m",
    "addr_format": "-a",
    "node": "-n",
    "port": "-P",
    "src_addr": "-s",
}
_PRIMARY = Caps.MSG | Caps.RMA | Caps.TAGGED | Caps.ATOMIC | Caps.MULTICAST | Caps.COLLECTIVE
_PARTS = ("tx_attr", "rx_attr", "ep_attr", "domain_attr", "fabric_attr", "nic")
Name = TypeVar("Name", bound=Choice)
Bits = TypeVar("Bits", bound=Flags)
Member = TypeVar("Member")


def configure(parser: ArgumentParser) -> None:
    """Describe the arguments."""
    ask = parser.add_argument_group("filters").add_argument
    ask("-p", "--provider", metavar="NAME", default="", help="provider, such as tcp or 'tcp;ofi_rxm'")
    ask("-f", "--fabric", metavar="NAME", default="", help="fabric")
    ask("-d", "--domain", metavar="NAME", default="", help="domain, such as a network interface")
    ask("-t", "--ep_type", metavar="TYPE", type=_choice(EndpointType, "ep_"), default=EndpointType.UNSPEC,
        help="endpoint type: msg, rdm or dgram")  # fmt: skip
    ask("-c", "--caps", metavar="CAPS", type=_flags(Caps), default=Caps(0),
        help="capabilities, as in 'msg|rma' or msg,rma")  # fmt: skip
    ask("-m", "--mode", metavar="MODES", type=_flags(Mode), help="modes that the application provides")
    ask("-a", "--addr_format", metavar="FORMAT", type=_choice(AddressFormat, ""), default=AddressFormat.FORMAT_UNSPEC,
        help="address format, such as sockaddr_in")  # fmt: skip
    ask("-P", "--port", metavar="PORT", type=_service, help="the peer's port or service name")
    side = parser.add_argument_group("one side").add_mutually_exclusive_group().add_argument
    side("-n", "--node", metavar="HOST", help="the peer's name or address")
    side("-s", "--src_addr", metavar="HOST", help="the local name or address instead of a peer's")
    output = parser.add_argument_group("output")
    show = output.add_mutually_exclusive_group().add_argument
    show("-l", "--list", action="store_true", help="the providers only")
    show("-e", "--env", action="store_true", help="the environment variables that libfabric reads")
    show("-g", "--getenv", metavar="PART", help="the variables whose name contains this part")
    show("-v", "--verbose", action="store_true", help="everything, as libfabric prints it (fi_tostr)")
    output.add_argument("--json", action="store_true",
        help="everything, for programs: fi_info's fields under their own names")  # fmt: skip


def run(options: Namespace) -> int:
    """Call getinfo, and print the results."""
    _check_names(options)
    try:
        found = _ask(options)
    except NoProviderError:
        check_provider(options.provider)
        print(f"aiofabric info: {unmet(options, _FLAGS, _ask)}", file=sys.stderr)
        return 1
    if options.env or options.getenv is not None:
        _print_variables(options.getenv or "", as_json=options.json)
    elif options.list:
        _print_providers(found, as_json=options.json)
    elif options.json:
        print(json.dumps([fields_of(info) for info in found], indent=2))
    elif options.verbose:
        print("\n".join(f"---\n{info}".rstrip("\n") for info in found))
    else:
        _print_table(found)
    return 0


def _ask(options: Namespace) -> list[Info]:
    return getinfo(
        options.src_addr or options.node or None,
        options.port or None,
        flags=GetInfoFlags.SOURCE if options.src_addr else GetInfoFlags(0),
        hints=_hints(options),
    )


def _check_names(options: Namespace) -> None:
    """Refuse names that do not resolve; not for shared memory, whose endpoints may have any name."""
    node = options.src_addr or options.node
    if options.provider in _ANY_NAME or (node and "://" in node):
        return
    try:
        socket.getaddrinfo(node or None, options.port or 0, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        flag = (
            f"-P {options.port}"
            if error.errno == socket.EAI_SERVICE
            else f"{'-s' if options.src_addr else '-n'} {node}"
        )
        raise UsageError(f"{flag}: {error.strerror}") from None


def _hints(options: Namespace) -> Hints:
    hints = Hints(
        caps=options.caps,
        addr_format=options.addr_format,
        ep_attr=EpAttr(type=options.ep_type),
        domain_attr=DomainAttr(name=options.domain),
        fabric_attr=FabricAttr(prov_name=options.provider, name=options.fabric),
    )
    if options.mode is not None:
        hints.mode = options.mode
    return hints


def fields_of(value: Any) -> Any:
    """The value as JSON; an `Info` is an object with the names of struct fi_info."""
    match value:
        case Info():
            sides = {side: getattr(value, side) for side in ("src_addr", "dest_addr")}
            sizes = {f"{side}len": len(address.raw) if address else 0 for side, address in sides.items()}
            plain = {"caps": value.caps, "mode": value.mode, "addr_format": value.addr_format} | sizes | sides
            return fields_of(plain | {part: getattr(value, part) for part in _PARTS})
        case Flags():
            return str(value).split(" | ") if value else []
        case Choice() | Address() | Version():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {name: fields_of(each) for name, each in value.items()}
        case _ if is_dataclass(value):
            return {field.name: fields_of(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value if isinstance(value, str | int | None) else str(value)


def _print_table(found: list[Info]) -> None:
    offers: dict[tuple[str, ...], dict[str, None]] = {}  # offers that differ only in fabric or details share a line
    for info in found:
        offer = (
            info.fabric_attr.prov_name,
            _short(info.ep_attr.type).removeprefix("ep_"),
            info.domain_attr.name,
            _short(info.ep_attr.protocol).removeprefix("proto_").removeprefix("unknown_"),
            " ".join(_short(cap) for cap in Caps(info.caps & _PRIMARY)),
        )
        offers.setdefault(offer, {})[info.fabric_attr.name] = None
    heading = ("PROVIDER", "TYPE", "DOMAIN", "PROTOCOL", "CAPABILITIES", "FABRICS")
    print(table(heading, [(*offer, " ".join(fabrics)) for offer, fabrics in offers.items()]))
    if on_terminal():
        where = f"libfabric {library_version()} from {library_path()}; -v shows everything, --json is for programs"
        print(*(paint(line, DIM) for line in textwrap.wrap(where, width())), sep="\n")


def _print_providers(found: list[Info], *, as_json: bool) -> None:
    versions = {info.fabric_attr.prov_name: info.fabric_attr.prov_version for info in found}
    if as_json:
        listed = [{"prov_name": name, "prov_version": str(version)} for name, version in versions.items()]
        print(json.dumps(listed, indent=2))
    else:
        print(table(("PROVIDER", "VERSION"), [(name, _release(version)) for name, version in versions.items()]))


def _release(version: Version) -> str:
    """A provider's version as a libfabric release: libfabric's own providers have 117.0 for 1.17, 205.10 for 2.5.1."""
    if version.major < 100:
        return str(version)
    release = f"{version.major // 100}.{version.major % 100}"
    return f"{release}.{version.minor // 10}" if version.minor >= 10 else release


def _print_variables(part: str, *, as_json: bool) -> None:
    known = [each for each in parameters() if part.upper() in each.name]
    if not known:
        raise UsageError(f"-g {part}: no variable's name contains this; -e lists all variables")
    if as_json:
        print(json.dumps([fields_of(each._asdict()) for each in known], indent=2))
        return
    columns = min(width(), 100)
    for each in known:
        print(f"{each.name}={each.value}" if each.value is not None else each.name)
        print(textwrap.fill(each.help, columns, initial_indent="    ", subsequent_indent="    "))


def _short(name: Choice | Flags) -> str:
    return str(name).removeprefix("FI_").lower()


def _service(text: str) -> str:
    return str(port(text)) if text.isdecimal() else text


def _choice(family: type[Name], prefix: str) -> Callable[[str], Name]:
    """Parse a name of the family; most of libfabric's names begin with FI_ and ``prefix``."""
    known = {_short(member).removeprefix(prefix): member for member in family}

    def read(text: str) -> Name:
        return _look_up(text.lower().removeprefix("fi_").removeprefix(prefix), known)

    return read


def _flags(family: type[Bits]) -> Callable[[str], Bits]:
    """Parse names of the family, separated as in fi_info or by commas."""
    known = {_short(member): member for member in family}

    def read(text: str) -> Bits:
        bits = family(0)
        for word in text.lower().replace("|", " ").replace(",", " ").split():
            bits |= _look_up(word.removeprefix("fi_"), known)
        return bits

    return read


def _look_up(name: str, known: dict[str, Member]) -> Member:
    if name not in known:
        raise ArgumentTypeError(f"there is no {name!r}; there are {', '.join(known)}")
    return known[name]
