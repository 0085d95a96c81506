"""Recorded offers of providers that need devices, with the rules by which each fits its offers to hints.

The values come from libfabric's sources, version 2.5.1 unless the name of an offer says 1.17. Sizes that a device
reports, such as EFA's inline size, are those of its documentation. `Fabrics` answers as fi_getinfo does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aiofabric import (
    Address,
    AddressFormat,
    Caps,
    DomainAttr,
    EndpointType,
    EpAttr,
    FabricAttr,
    GetInfoFlags,
    Hints,
    Info,
    Mode,
    MrMode,
    RxAttr,
    TxAttr,
)
from aiofabric.info.matching import suitable

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_LIMIT = 2**64 - 1
NO_MODE, NO_MR_MODE, NO_FLAGS = Mode(0), MrMode(0), GetInfoFlags(0)
GENERIC_TAGS = 0xAAAAAAAAAAAAAAAA
UCX_FORMAT = AddressFormat(16)  # 1.18's FI_ADDR_UCX: unknown to the headers of 1.17
MSG, RDM, DGRAM = EndpointType.MSG, EndpointType.RDM, EndpointType.DGRAM

_RMA = Caps.RMA | Caps.READ | Caps.WRITE | Caps.REMOTE_READ | Caps.REMOTE_WRITE
_MSG = Caps.MSG | Caps.SEND | Caps.RECV
_NET = Caps.LOCAL_COMM | Caps.REMOTE_COMM
_ALL = _MSG | _RMA | _NET | Caps.TAGGED | Caps.ATOMIC | Caps.SOURCE | Caps.DIRECTED_RECV | Caps.MULTI_RECV
_SECONDARY = Caps.SOURCE | Caps.MULTI_RECV | _NET | Caps.RMA_EVENT
_FOR_TARGETS = MrMode.RAW | MrMode.VIRT_ADDR | MrMode.PROV_KEY | MrMode.RMA_EVENT  # OFI_MR_MODE_RMA_TARGET
_OLD = MrMode.BASIC | MrMode.SCALABLE


@dataclass(frozen=True)
class Offer:
    """One struct fi_info of a provider's list."""

    provider: str
    domain: str
    fabric: str = "fabric"
    kind: EndpointType = RDM
    caps: Caps = _ALL
    mode: Mode = NO_MODE
    mr_mode: MrMode = NO_MR_MODE
    if_offered: MrMode = NO_MR_MODE
    """Bits of mr_mode that the provider adds if the hints have them."""
    format: AddressFormat = AddressFormat.FORMAT_UNSPEC
    address: bytes = b""
    tags: int = GENERIC_TAGS
    key_size: int = 8
    data_size: int = 4
    tx: dict[str, Any] = field(default_factory=lambda: {"size": 1024, "iov_limit": 4, "inject_size": 64})
    rx: dict[str, Any] = field(default_factory=lambda: {"size": 1024, "iov_limit": 4})
    limit: int = NO_LIMIT
    prefix_if_offered: bool = False

    def answer(self, hints: Hints | None) -> Info | None:
        """The offer as the provider fits it to hints, or None (util_attr.c, ofi_check_info and ofi_alter_info)."""
        hints = Hints() if hints is None else hints
        native = hints.to_native()
        if hints.caps & ~self.caps or (hints.ep_attr.type or self.kind) != self.kind:
            return None
        if hints.addr_format not in (AddressFormat.FORMAT_UNSPEC, self.format):
            return None
        caps = hints.caps | self.caps & _SECONDARY if hints.caps else self.caps
        mode = self.mode & ~Mode.RX_CQ_DATA | self.mode & Mode(native.mode)
        required = self.mr_mode & ~(MrMode(0) if caps & Caps.HMEM else MrMode.HMEM)
        if not caps & Caps.RMA:
            required &= ~_FOR_TARGETS
        if mode & ~Mode(native.mode) or required & ~(hints.domain_attr.mr_mode | _OLD):
            return None
        if self.prefix_if_offered and Mode(native.mode) & Mode.MSG_PREFIX:
            mode |= Mode.MSG_PREFIX
        made = Hints(
            caps=caps,
            mode=mode,
            addr_format=self.format,
            src_addr=Address(self.format, self.address) if self.address else None,
            tx_attr=TxAttr(**self.tx),
            rx_attr=RxAttr(**self.rx),
            ep_attr=EpAttr(type=self.kind, mem_tag_format=self.tags, max_msg_size=self.limit),
            domain_attr=DomainAttr(
                name=self.domain,
                mr_mode=required | self.if_offered & hints.domain_attr.mr_mode,
                mr_key_size=self.key_size,
                cq_data_size=self.data_size,
            ),
            fabric_attr=FabricAttr(prov_name=self.provider, name=self.fabric),
        )
        info = Info(made.to_native())
        info.native.mode = int(mode)
        return info


class Fabrics:
    """fi_getinfo of a host with the providers of these offers. It counts the questions."""

    def __init__(self, *offers: Offer | Iterable[Offer]) -> None:
        self.offers = [each for some in offers for each in ([some] if isinstance(some, Offer) else some)]
        self.questions: list[Hints | None] = []

    def __call__(
        self,
        node: str | None = None,
        service: str | int | None = None,
        *,
        flags: GetInfoFlags = NO_FLAGS,
        hints: Hints | None = None,
        version: tuple[int, int] | None = None,
    ) -> list[Info]:
        self.questions.append(hints)
        name = "" if hints is None else hints.fabric_attr.prov_name
        fitting = (each for each in self.offers if set(filter(None, name.split(";"))) <= set(each.provider.split(";")))
        found = [info for each in fitting if (info := each.answer(hints)) is not None]
        return found if hints is None else suitable(found, hints)


_EFA_KEYS = MrMode.VIRT_ADDR | MrMode.ALLOCATED | MrMode.PROV_KEY
_DEVICE_SIZES: dict[str, Any] = {
    "tx": {"size": 4096, "iov_limit": 2, "inject_size": 32},
    "rx": {"size": 8192, "iov_limit": 1},
}
_GID = bytes.fromhex("fe80000000000000") + bytes(8)


def efa(device: str = "rdmap0s6", *, direct: bool = True, number: int = 1) -> list[Offer]:
    """EFA of 2.x: efa-direct comes before the reliable datagrams, and both have the domain of the device."""
    address = _GID[:15] + bytes([number]) + bytes(16)  # struct efa_ep_addr: GID, number and key of the queue pair, next
    plain = Offer(
        "efa", f"{device}-rdm", "efa", mr_mode=_EFA_KEYS, if_offered=MrMode.LOCAL, format=AddressFormat.ADDR_EFA,
        address=address, key_size=4, prefix_if_offered=True, tx={"size": 4096, "iov_limit": 4, "inject_size": 3888},
        rx={"size": 8192, "iov_limit": 4},
    )  # fmt: skip
    straight = replace(
        plain, fabric="efa-direct", caps=_MSG | _RMA | _NET | Caps.SOURCE, mode=Mode.CONTEXT2 | Mode.RX_CQ_DATA,
        mr_mode=_EFA_KEYS | MrMode.LOCAL, if_offered=MrMode(0), prefix_if_offered=False, tags=0, limit=1 << 30,
        **_DEVICE_SIZES,
    )  # fmt: skip
    datagrams = replace(
        straight, domain=f"{device}-dgrm", fabric="efa", kind=DGRAM, caps=_MSG | _NET | Caps.SOURCE,
        mode=Mode.MSG_PREFIX | Mode.CONTEXT2, limit=8928,
    )  # fmt: skip
    return [*([straight] if direct else []), plain, datagrams]


def efa_1_17() -> list[Offer]:
    """Only reliable datagrams and datagrams; FI_MR_ALLOCATED and the rest as in 2.x."""
    return [replace(each, mode=each.mode & ~Mode.CONTEXT2) for each in efa(direct=False)]


def cxi(device: str = "cxi0", number: int = 1) -> list[Offer]:
    """Two of the lists of cxip_info.c: keys of the provider, and keys of the program. 48 bits of a tag."""
    first = Offer(
        "cxi", device, "cxi", caps=_ALL | Caps.RMA_EVENT | Caps.NAMED_RX_CTX | Caps.FENCE | Caps.TRIGGER,
        mr_mode=MrMode.PROV_KEY | MrMode.ALLOCATED | MrMode.ENDPOINT, format=AddressFormat.ADDR_CXI,
        address=bytes([number]) * 8, tags=GENERIC_TAGS >> 16, data_size=8, limit=2**32 - 1,
        tx={"size": 1024, "iov_limit": 1, "inject_size": 192}, rx={"size": 1024, "iov_limit": 1},
    )  # fmt: skip
    return [first, replace(first, mr_mode=MrMode.ALLOCATED | MrMode.ENDPOINT, key_size=4)]


def psm(number: int = 3) -> list[Offer]:
    """The offers with 64 and 60 bits of a tag; the first carries no remote data (psmx3_attr.c)."""
    form = AddressFormat.ADDR_PSMX3 if number == 3 else AddressFormat.ADDR_PSMX2
    size = 32 if number == 3 else 16  # the epid has 24 bytes, and in psm2 8
    first = Offer(
        f"psm{number}", "mlx5_0", mode=Mode.CONTEXT, mr_mode=MrMode.SCALABLE, format=form, address=bytes(size),
        data_size=0, limit=(2**32 - 1) & ~0xFFF, tx={"size": NO_LIMIT, "iov_limit": 13, "inject_size": 64},
        rx={"size": NO_LIMIT, "iov_limit": 1},
    )  # fmt: skip
    return [first, replace(first, tags=GENERIC_TAGS >> 4, data_size=4)]


def opx() -> list[Offer]:
    return [
        Offer(
            "opx", "opx_domain", mode=Mode.ASYNC_IOV, mr_mode=MrMode.SCALABLE | MrMode.HMEM,
            format=AddressFormat.ADDR_OPX, address=bytes(8), tags=NO_LIMIT, key_size=2,
            tx={"size": NO_LIMIT, "iov_limit": NO_LIMIT, "inject_size": 16},
            rx={"size": NO_LIMIT, "iov_limit": NO_LIMIT},
        )
    ]  # fmt: skip


def ucx() -> list[Offer]:
    """Keys of up to 64 bytes: remote memory needs FI_MR_RAW. No FI_SOURCE, no FI_DIRECTED_RECV."""
    return [
        Offer(
            "ucx", "ucx", "ucx", caps=_MSG | _RMA | _NET | Caps.TAGGED | Caps.MULTI_RECV,
            mr_mode=MrMode.BASIC | MrMode.RAW | _EFA_KEYS, if_offered=MrMode.HMEM, format=UCX_FORMAT, key_size=64,
            data_size=0, tx={"size": 384, "iov_limit": 1, "inject_size": 1024}, rx={"size": 384, "iov_limit": 4},
        )
    ]  # fmt: skip


def lnx() -> list[Offer]:
    """shm and tcp as 2.5.1 links them: the format of one, the memory modes of both, and an address of its own."""
    return [
        Offer(
            "lnx", "shm+eth0", "lnx", mr_mode=MrMode.VIRT_ADDR, format=AddressFormat.SOCKADDR_IN,
            address=bytes([2, 0, 0, 0, 192, 0, 2, 2]) + bytes(8), data_size=8,
        )
    ]  # fmt: skip


def verbs(device: str = "mlx5_0", number: int = 1) -> list[Offer]:
    """InfiniBand with 2.5.1: connected endpoints with IP addresses and with those of InfiniBand, rxm, and datagrams."""
    native = bytes([27, 0]) + bytes(46)  # struct sockaddr_ib; AF_IB is 27
    ip = Address.from_ip(f"192.0.2.{number}")
    connected = Offer(
        "verbs", device, "IB-0xfe80000000000000", MSG, _MSG | _RMA | _NET | Caps.ATOMIC, Mode.RX_CQ_DATA,
        _EFA_KEYS | MrMode.LOCAL, format=ip.format, address=ip.raw, tags=0, key_size=4, limit=2**30,
        tx={"size": 384, "iov_limit": 4, "inject_size": 256}, rx={"size": 384, "iov_limit": 4},
    )  # fmt: skip
    layered = replace(
        connected, provider="verbs;ofi_rxm", kind=RDM, caps=_ALL, mode=Mode(0), mr_mode=_EFA_KEYS,
        if_offered=MrMode.LOCAL, tags=GENERIC_TAGS, tx={"size": 2048, "iov_limit": 4, "inject_size": 64},
        rx={"size": 2048, "iov_limit": 4},
    )  # fmt: skip
    datagrams = replace(
        connected, domain=f"{device}-dgram", kind=DGRAM, caps=_MSG | _NET, mode=Mode.MSG_PREFIX | Mode.RX_CQ_DATA,
        format=AddressFormat.ADDR_IB_UD, address=bytes(32), limit=4096,
    )  # fmt: skip
    return [connected, replace(connected, format=AddressFormat.SOCKADDR_IB, address=native), layered, datagrams]


def tcp() -> list[Offer]:
    """Software beside the devices, as 1.17 lists it."""
    ip = Address.from_ip("192.0.2.9")
    connected = Offer("tcp", "eth0", kind=MSG, caps=_MSG | _RMA | _NET, format=ip.format, address=ip.raw, tags=0)
    return [connected, replace(connected, provider="tcp;ofi_rxm", kind=RDM, caps=_ALL, tags=GENERIC_TAGS)]
