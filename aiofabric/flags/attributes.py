"""Choices in the attributes of domains, endpoints and devices (man pages: fi_domain, fi_endpoint)."""

from __future__ import annotations

from .._ffi import constants as C
from .._ffi import lib
from .family import Choice, optional


class EndpointType(Choice, prefix="FI_EP_"):
    """How an endpoint communicates with its peers."""

    UNSPEC = C.FI_EP_UNSPEC
    """Any; in hints only."""
    MSG = C.FI_EP_MSG
    """Connected, reliable, message boundaries kept."""
    DGRAM = C.FI_EP_DGRAM
    """Connectionless, unreliable, message boundaries kept."""
    RDM = C.FI_EP_RDM
    """Connectionless, reliable, message boundaries kept."""
    SOCK_STREAM = optional("FI_EP_SOCK_STREAM")
    """Until 1.20: a byte stream like a TCP socket. No provider had it."""
    SOCK_DGRAM = optional("FI_EP_SOCK_DGRAM")
    """Until 1.20: datagrams like a UDP socket. No provider had it."""


class AddressFormat(Choice):
    """The layout of an address (man page: fi_getinfo, addressing formats)."""

    FORMAT_UNSPEC = C.FI_FORMAT_UNSPEC
    """In hints: any. In an info: the provider's own, opaque."""
    SOCKADDR = C.FI_SOCKADDR
    """A struct sockaddr; its family field names the layout."""
    SOCKADDR_IN = C.FI_SOCKADDR_IN
    """IPv4: struct sockaddr_in."""
    SOCKADDR_IN6 = C.FI_SOCKADDR_IN6
    """IPv6: struct sockaddr_in6."""
    SOCKADDR_IB = C.FI_SOCKADDR_IB
    """InfiniBand: struct sockaddr_ib."""
    SOCKADDR_IP = optional("FI_SOCKADDR_IP")
    """2.3: SOCKADDR_IN or SOCKADDR_IN6."""
    ADDR_STR = C.FI_ADDR_STR
    """A text, such as fi_sockaddr://127.0.0.1:7471."""
    ADDR_PSMX = C.FI_ADDR_PSMX
    """Intel PSM."""
    ADDR_PSMX2 = C.FI_ADDR_PSMX2
    """Intel PSM2."""
    ADDR_PSMX3 = C.FI_ADDR_PSMX3
    """Intel PSM3."""
    ADDR_GNI = C.FI_ADDR_GNI
    """Cray GNI."""
    ADDR_BGQ = C.FI_ADDR_BGQ
    """IBM Blue Gene/Q."""
    ADDR_MLX = C.FI_ADDR_MLX
    """Mellanox UCX, the mlx provider."""
    ADDR_IB_UD = C.FI_ADDR_IB_UD
    """InfiniBand unreliable datagrams."""
    ADDR_EFA = C.FI_ADDR_EFA
    """Amazon Elastic Fabric Adapter."""
    ADDR_OPX = C.FI_ADDR_OPX
    """Cornelis Omni-Path."""
    ADDR_CXI = C.FI_ADDR_CXI
    """HPE Slingshot."""
    ADDR_UCX = optional("FI_ADDR_UCX")
    """1.18: UCX."""


class Protocol(Choice, prefix="FI_PROTO_"):
    """The protocol on the wire; endpoints of the same protocol can communicate."""

    UNSPEC = C.FI_PROTO_UNSPEC
    """Any; in hints only."""
    RDMA_CM_IB_RC = C.FI_PROTO_RDMA_CM_IB_RC
    """InfiniBand reliable connections, set up by the RDMA connection manager."""
    IWARP = C.FI_PROTO_IWARP
    """iWARP."""
    IB_UD = C.FI_PROTO_IB_UD
    """InfiniBand unreliable datagrams."""
    PSMX = C.FI_PROTO_PSMX
    """Intel PSM."""
    UDP = C.FI_PROTO_UDP
    """UDP datagrams."""
    SOCK_TCP = C.FI_PROTO_SOCK_TCP
    """The sockets and tcp providers of 1.17."""
    MXM = C.FI_PROTO_MXM
    """Mellanox MXM; removed."""
    IWARP_RDM = C.FI_PROTO_IWARP_RDM
    """Reliable datagrams over iWARP connections."""
    IB_RDM = C.FI_PROTO_IB_RDM
    """Reliable datagrams over InfiniBand connections."""
    GNI = C.FI_PROTO_GNI
    """Cray GNI."""
    RXM = C.FI_PROTO_RXM
    """The ofi_rxm layer: reliable datagrams over any connected provider."""
    RXD = C.FI_PROTO_RXD
    """The ofi_rxd layer: reliable datagrams over any datagram provider."""
    MLX = C.FI_PROTO_MLX
    """The mlx provider."""
    NETWORKDIRECT = C.FI_PROTO_NETWORKDIRECT
    """Microsoft NetworkDirect."""
    PSMX2 = C.FI_PROTO_PSMX2
    """Intel PSM2."""
    SHM = C.FI_PROTO_SHM
    """Shared memory, one host."""
    MRAIL = C.FI_PROTO_MRAIL
    """The ofi_mrail layer: several links as one."""
    RSTREAM = C.FI_PROTO_RSTREAM
    """Byte streams over RDMA."""
    RDMA_CM_IB_XRC = C.FI_PROTO_RDMA_CM_IB_XRC
    """InfiniBand extended reliable connections."""
    EFA = C.FI_PROTO_EFA
    """Amazon's scalable reliable datagrams."""
    PSMX3 = C.FI_PROTO_PSMX3
    """Intel PSM3."""
    RXM_TCP = C.FI_PROTO_RXM_TCP
    """The ofi_rxm layer over tcp."""
    OPX = C.FI_PROTO_OPX
    """Cornelis Omni-Path."""
    CXI = C.FI_PROTO_CXI
    """HPE Slingshot."""
    XNET = C.FI_PROTO_XNET
    """The tcp provider's reliable datagrams (called net in 1.17)."""
    COLL = optional("FI_PROTO_COLL")
    """1.18: the layer of collective operations."""
    UCX = optional("FI_PROTO_UCX")
    """1.18: UCX."""
    SM2 = optional("FI_PROTO_SM2")
    """1.19: shared memory, second design."""
    CXI_RNR = optional("FI_PROTO_CXI_RNR")
    """1.21: HPE Slingshot without receiver flow control."""
    LPP = optional("FI_PROTO_LPP")
    """2.0: GigaIO FabreX."""
    LNX = optional("FI_PROTO_LNX")
    """2.0: the layer that links several providers."""


class TrafficClass(Choice, prefix="FI_TC_"):
    """How the network should treat the traffic (tclass of domains and transmit contexts)."""

    UNSPEC = C.FI_TC_UNSPEC
    """The provider's default."""
    BEST_EFFORT = C.FI_TC_BEST_EFFORT
    """No preference."""
    LOW_LATENCY = C.FI_TC_LOW_LATENCY
    """Short messages that need low latency."""
    DEDICATED_ACCESS = C.FI_TC_DEDICATED_ACCESS
    """Guaranteed bandwidth."""
    BULK_DATA = C.FI_TC_BULK_DATA
    """Large transfers without latency requirements; on tcp it leaves Nagle's algorithm on."""
    SCAVENGER = C.FI_TC_SCAVENGER
    """Only bandwidth that other traffic leaves over."""
    NETWORK_CTRL = C.FI_TC_NETWORK_CTRL
    """Management of the network itself."""

    @classmethod
    def from_dscp(cls, dscp: int) -> TrafficClass:
        """Return the class for a differentiated services code point, 0 to 63 (fi_tc_dscp_set)."""
        if not 0 <= dscp < 64:
            raise ValueError(f"a DSCP has 6 bits, 0 to 63, not {dscp}")
        return cls(lib.fi_tc_dscp_set(dscp))

    @property
    def dscp(self) -> int | None:
        """The differentiated services code point; None if the class is not one (fi_tc_dscp_get)."""
        return int(lib.fi_tc_dscp_get(self)) if self & C.FI_TC_DSCP else None


class Threading(Choice, prefix="FI_THREAD_"):
    """Which calls the application serialises itself; the more it does, the less the provider locks."""

    UNSPEC = C.FI_THREAD_UNSPEC
    """Any; in hints only."""
    SAFE = C.FI_THREAD_SAFE
    """Any thread may call anything."""
    FID = C.FI_THREAD_FID
    """One thread at a time for each object. No provider of libfabric 2.x offers it."""
    DOMAIN = C.FI_THREAD_DOMAIN
    """One thread at a time for each domain and all objects opened from it."""
    COMPLETION = C.FI_THREAD_COMPLETION
    """One thread at a time for all endpoints that share a completion queue or counter."""
    ENDPOINT = C.FI_THREAD_ENDPOINT
    """One thread at a time for each endpoint. No provider of libfabric 2.x offers it."""


class Progress(Choice, prefix="FI_PROGRESS_"):
    """Which side makes progress on operations."""

    UNSPEC = C.FI_PROGRESS_UNSPEC
    """Any; in hints only."""
    AUTO = C.FI_PROGRESS_AUTO
    """The provider, on its own (most providers: while a queue is read)."""
    MANUAL = C.FI_PROGRESS_MANUAL
    """The application, by reading its queues."""
    CONTROL_UNIFIED = optional("FI_PROGRESS_CONTROL_UNIFIED")
    """1.21: the application, for control and data together, by reading any queue."""


class ResourceManagement(Choice, prefix="FI_RM_"):
    """Which side prevents overflows of queues."""

    UNSPEC = C.FI_RM_UNSPEC
    """Any; in hints only."""
    DISABLED = C.FI_RM_DISABLED
    """The application."""
    ENABLED = C.FI_RM_ENABLED
    """The provider: calls return -FI_EAGAIN instead."""


class AvType(Choice, prefix="FI_AV_"):
    """How an address vector numbers its addresses."""

    UNSPEC = C.FI_AV_UNSPEC
    """Any; in hints only."""
    MAP = C.FI_AV_MAP
    """Arbitrary numbers. 2.x treats it as TABLE."""
    TABLE = C.FI_AV_TABLE
    """0, 1, 2 in the order of insertion."""


class HmemIface(Choice, prefix="FI_HMEM_"):
    """The kind of device that the memory belongs to."""

    SYSTEM = C.FI_HMEM_SYSTEM
    """The host."""
    CUDA = C.FI_HMEM_CUDA
    """NVIDIA devices."""
    ROCR = C.FI_HMEM_ROCR
    """AMD devices."""
    ZE = C.FI_HMEM_ZE
    """Intel oneAPI Level Zero devices."""
    NEURON = C.FI_HMEM_NEURON
    """AWS Neuron devices."""
    SYNAPSEAI = C.FI_HMEM_SYNAPSEAI
    """Habana Gaudi devices."""
    """A Habana Gaudi device's."""


class BusType(Choice, prefix="FI_BUS_"):
    """How a network device is attached."""

    UNSPEC = C.FI_BUS_UNSPEC
    """Not reported."""
    PCI = C.FI_BUS_PCI
    """PCI Express."""


class LinkState(Choice, prefix="FI_LINK_"):
    """Whether the link of a network device is up."""

    UNKNOWN = C.FI_LINK_UNKNOWN
    """Not reported."""
    DOWN = C.FI_LINK_DOWN
    """No."""
    UP = C.FI_LINK_UP
    """Yes."""


class ParameterType(Choice, prefix="FI_PARAM_"):
    """The type that libfabric reads an environment variable as."""

    STRING = C.FI_PARAM_STRING
    """Text."""
    INT = C.FI_PARAM_INT
    """A number."""
    BOOL = C.FI_PARAM_BOOL
    """yes or no, on or off, 1 or 0."""
    SIZE_T = C.FI_PARAM_SIZE_T
    """A number that is not negative."""
