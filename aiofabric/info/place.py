"""Place: checks of the host and port that a call names; unsupported forms raise an error that names the right one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..address import SCHEMES, Address, is_ip, split_uri

__all__ = ["check_place", "check_remote", "place_in_hints"]

if TYPE_CHECKING:
    from .hints import Hints

_PORTS = 1 << 16
_FORMS = (
    "An address is a host name or numeric address with a port as the second argument, an Address, "
    "or the text of one, such as 'fi_sockaddr_in://127.0.0.1:7471' or 'fi_shm://name'"
)


def check_remote(node: Any, service: Any) -> None:
    """Refuse a host and port that name no peer.

    Raises:
        TypeError: the address is None, a tuple, bytes, or of another wrong type.
        ValueError: the port is missing, 0 or out of range; or the text has an unsupported form.
    """
    if node is None:
        raise TypeError(f"the address of the peer is missing. {_FORMS}")
    check_place(node, service)
    if isinstance(node, Address):
        port: Any = node.port if node.family else None
        needed = bool(node.family)
    elif "://" in node:
        parts = split_uri(node)
        needed, port = parts is not None, parts and parts[1]
    else:
        needed, port = True, service
    if needed and port in (None, "", 0, "0"):
        what = "the port is missing" if port in (None, "") else "port 0 names no peer: only a listener may use it"
        raise ValueError(f"{what}, in the address {str(node)!r}. {_FORMS}")


def check_place(node: Any, service: Any) -> None:
    """Refuse an address or a port of an unsupported form; a local one may be missing. Raises like `check_remote`."""
    if isinstance(service, bool) or not isinstance(service, int | str | None):
        raise TypeError(f"a port must be a number, or the name of a service, not {service!r}")
    _check_port(service)
    if node is None:
        return
    if isinstance(node, Address):
        if service is not None:
            raise ValueError(f"{node} is a complete address: leave out the service {service!r}")
        return
    if not isinstance(node, str):
        raise TypeError(f"{node!r} is not an address. {_instead_of(node)}{_FORMS}")
    if not node or "\0" in node:
        raise ValueError(f"{node!r} is not an address. {_FORMS}")
    if "://" in node:
        _check_text(node, service)
    elif ":" in node and not is_ip(node):
        host, _, port = node.rpartition(":")
        host, port = (node.strip("[]"), "") if node.endswith("]") else (host.strip("[]"), port)
        apart = f"{host!r}, {port}" if port.isdecimal() else repr(host) if is_ip(host) else "the host, the port"
        raise ValueError(f"{node!r} is not an address: pass host and port apart ({apart}). {_FORMS}")


def place_in_hints(node: Any, service: Any, hints: Hints | None, field: str) -> Any:
    """Return ``node``, or the address in the hints if the call names no place.

    Args:
        field: ``src_addr`` or ``dest_addr``.

    Raises:
        ValueError: the call and the hints name a place each; libfabric would ignore the hints.
    """
    address = None if hints is None else getattr(hints, field)
    if address is None:
        return node
    if node is None and service is None:
        return address
    given = " ".join(str(each) for each in (node, service) if each is not None)
    raise ValueError(f"the hints have {field}={address}, and the call names {given}: leave one of them out")


def _check_port(service: str | int | None) -> None:
    """Refuse a number that is not a port: the system would take it modulo 65536 without an error."""
    if isinstance(service, str) and service.isdecimal():
        service = int(service)
    if isinstance(service, int) and not 0 <= service < _PORTS:
        raise ValueError(f"a port must be 0 to 65535, not {service}")


def _check_text(node: str, service: Any) -> None:
    scheme = node.partition("://")[0]
    if not scheme.startswith("fi_") or (scheme in SCHEMES and split_uri(node) is None):
        raise ValueError(f"{node!r} is not an address. {_FORMS}")
    if service is not None:
        raise ValueError(f"{node!r} is a complete address: leave out the service {service!r}")


def _instead_of(node: Any) -> str:
    match node:
        case (str() as host, int() as port, *_):
            return f"Pass host and port apart ({host!r}, {port}). "
        case bytes():
            return "Pass a text, or Address(format, raw) for the bytes of a raw address. "
        case int():
            return "The port is the second argument. "
    return ""
