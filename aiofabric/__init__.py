"""Asynchronous Python on high-performance fabrics: libfabric endpoints for asyncio, uvloop and trio."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from aiofabric import starting as _starting  # noqa: F401 - first, because the other imports take time

__version__ = "0.1.0"

# Modules and their public names. A module is imported at the first use of one of its names: importing all of them takes
# 100 ms, and a program needs few.
_PUBLIC = {
    "address": "Address",
    "address_vector": "AddressVector Peer",
    "cm.listener": "Listener",
    "cm.queue": "EventQueue",
    "cm.requests": "ConnectionRequest ListenerStatistics",
    "cm.reservation": "Reservation",
    "cq.counter": "Counter",
    "cq.queue": "CompletionQueue",
    "cq.reactor": "Reactor",
    "cq.polling": "Waiting",
    "debugging": "debug",
    "domain": "Domain",
    "errors": (
        "FabricBrokenPipeError FabricConnectionAbortedError FabricConnectionEndedError FabricConnectionError "
        "FabricConnectionRefusedError FabricConnectionRejectedError FabricConnectionResetError FabricError "
        "FabricTimeoutError ForkedError InternalError LibfabricNotFound MessageTooLongError NameResolutionError "
        "NoProviderError NotSupportedError QueueOverrunError RemoteAccessError TruncatedMessageError UnreachableError "
        "WrongLoopError WrongThreadError"
    ),
    "fabric": "Fabric",
    "features": "Feature Quirk",
    "flags": (
        "Access AddressFormat AtomicForm AtomicOp AvFlags AvSetFlags AvType Bind BusType Caps CollectiveOp "
        "CompletionFlags ControlCommand CounterEvents CqFormat CqWaitCond Datatype DeferredOp EndpointOption "
        "EndpointType EqEvent GetInfoFlags HmemIface HmemP2P LinkState Mode MrFlags MrMode OpFlags Order "
        "ParameterType Progress Protocol ResourceManagement Threading TostrType TrafficClass TriggerEvent WaitObject"
    ),
    "info": (
        "SHARED_CONTEXT DeviceAttr DomainAttr EpAttr FabricAttr Hints Info LinkAttr Nic Parameter PciAttr RxAttr "
        "TxAttr Version api_version getinfo headers_version library_path library_version parameters tostr"
    ),
    "library": "LibraryObject",
    "memory": "MemoryRegion",
    "remote_region": "RemoteRegion",
    "settings": "EndpointSettings",
    "transport.messages.batch": "Batch",
    "transport.connectionless.collective": "Group",
    "transport.connect": "connect listen reserve",
    "transport.connected.endpoint": "MessageEndpoint",
    "transport.endpoint": "EndpointStatistics",
    "transport.connectionless.multicast": "MulticastGroup",
    "transport.opening.options": "EndpointOptions",
    "transport.tagged.peek": "Claim",
    "transport.connectionless.endpoint": "DatagramEndpoint RdmEndpoint",
    "transport.connectionless.open": "open_endpoint",
    "transport.messages.receive": "Message",
    "transport.rma.remote_writes": "RemoteWrite",
    "transport.connectionless.scalable": "ReceiveContext ScalableEndpoint TransmitContext open_scalable_endpoint",
    "transport.opening.shared_contexts": "SharedReceive SharedTransmit",
    "transport.tagged.tagged": "Envelope",
    "transport.rma.triggered": "Trigger XpuTrigger",
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}
_ROOMS = {"aio", "metrics", "streams", "testing", "workarounds"}  # modules with public names of their own
_PARTS = {module.partition(".")[0] for module in _PUBLIC} | _ROOMS


def __getattr__(name: str) -> object:
    """Import the object that ``name`` stands for; called once for each name."""
    from importlib import import_module

    if name in _MODULE_OF:
        value = getattr(import_module(f"aiofabric.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    if name == "__all__":  # for ``import *``; type checkers take the imports below
        return list(_MODULE_OF)
    if name in _PARTS:
        return import_module(f"aiofabric.{name}")
    raise AttributeError(f"module 'aiofabric' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_PARTS})


if _TYPE_CHECKING:  # for type checkers; a test compares it with _PUBLIC
    from aiofabric import aio as aio
    from aiofabric import metrics as metrics
    from aiofabric import streams as streams
    from aiofabric import testing as testing
    from aiofabric import workarounds as workarounds
    from aiofabric.address import Address as Address
    from aiofabric.address_vector import AddressVector as AddressVector
    from aiofabric.address_vector import Peer as Peer
    from aiofabric.cm.listener import Listener as Listener
    from aiofabric.cm.queue import EventQueue as EventQueue
    from aiofabric.cm.requests import ConnectionRequest as ConnectionRequest
    from aiofabric.cm.requests import ListenerStatistics as ListenerStatistics
    from aiofabric.cm.reservation import Reservation as Reservation
    from aiofabric.cq.counter import Counter as Counter
    from aiofabric.cq.polling import Waiting as Waiting
    from aiofabric.cq.queue import CompletionQueue as CompletionQueue
    from aiofabric.cq.reactor import Reactor as Reactor
    from aiofabric.debugging import debug as debug
    from aiofabric.domain import Domain as Domain
    from aiofabric.errors import FabricBrokenPipeError as FabricBrokenPipeError
    from aiofabric.errors import FabricConnectionAbortedError as FabricConnectionAbortedError
    from aiofabric.errors import FabricConnectionEndedError as FabricConnectionEndedError
    from aiofabric.errors import FabricConnectionError as FabricConnectionError
    from aiofabric.errors import FabricConnectionRefusedError as FabricConnectionRefusedError
    from aiofabric.errors import FabricConnectionRejectedError as FabricConnectionRejectedError
    from aiofabric.errors import FabricConnectionResetError as FabricConnectionResetError
    from aiofabric.errors import FabricError as FabricError
    from aiofabric.errors import FabricTimeoutError as FabricTimeoutError
    from aiofabric.errors import ForkedError as ForkedError
    from aiofabric.errors import InternalError as InternalError
    from aiofabric.errors import LibfabricNotFound as LibfabricNotFound
    from aiofabric.errors import MessageTooLongError as MessageTooLongError
    from aiofabric.errors import NameResolutionError as NameResolutionError
    from aiofabric.errors import NoProviderError as NoProviderError
    from aiofabric.errors import NotSupportedError as NotSupportedError
    from aiofabric.errors import QueueOverrunError as QueueOverrunError
    from aiofabric.errors import RemoteAccessError as RemoteAccessError
    from aiofabric.errors import TruncatedMessageError as TruncatedMessageError
    from aiofabric.errors import UnreachableError as UnreachableError
    from aiofabric.errors import WrongLoopError as WrongLoopError
    from aiofabric.errors import WrongThreadError as WrongThreadError
    from aiofabric.fabric import Fabric as Fabric
    from aiofabric.features import Feature as Feature
    from aiofabric.features import Quirk as Quirk
    from aiofabric.flags import Access as Access
    from aiofabric.flags import AddressFormat as AddressFormat
    from aiofabric.flags import AtomicForm as AtomicForm
    from aiofabric.flags import AtomicOp as AtomicOp
    from aiofabric.flags import AvFlags as AvFlags
    from aiofabric.flags import AvSetFlags as AvSetFlags
    from aiofabric.flags import AvType as AvType
    from aiofabric.flags import Bind as Bind
    from aiofabric.flags import BusType as BusType
    from aiofabric.flags import Caps as Caps
    from aiofabric.flags import CollectiveOp as CollectiveOp
    from aiofabric.flags import CompletionFlags as CompletionFlags
    from aiofabric.flags import ControlCommand as ControlCommand
    from aiofabric.flags import CounterEvents as CounterEvents
    from aiofabric.flags import CqFormat as CqFormat
    from aiofabric.flags import CqWaitCond as CqWaitCond
    from aiofabric.flags import Datatype as Datatype
    from aiofabric.flags import DeferredOp as DeferredOp
    from aiofabric.flags import EndpointOption as EndpointOption
    from aiofabric.flags import EndpointType as EndpointType
    from aiofabric.flags import EqEvent as EqEvent
    from aiofabric.flags import GetInfoFlags as GetInfoFlags
    from aiofabric.flags import HmemIface as HmemIface
    from aiofabric.flags import HmemP2P as HmemP2P
    from aiofabric.flags import LinkState as LinkState
    from aiofabric.flags import Mode as Mode
    from aiofabric.flags import MrFlags as MrFlags
    from aiofabric.flags import MrMode as MrMode
    from aiofabric.flags import OpFlags as OpFlags
    from aiofabric.flags import Order as Order
    from aiofabric.flags import ParameterType as ParameterType
    from aiofabric.flags import Progress as Progress
    from aiofabric.flags import Protocol as Protocol
    from aiofabric.flags import ResourceManagement as ResourceManagement
    from aiofabric.flags import Threading as Threading
    from aiofabric.flags import TostrType as TostrType
    from aiofabric.flags import TrafficClass as TrafficClass
    from aiofabric.flags import TriggerEvent as TriggerEvent
    from aiofabric.flags import WaitObject as WaitObject
    from aiofabric.info import SHARED_CONTEXT as SHARED_CONTEXT
    from aiofabric.info import DeviceAttr as DeviceAttr
    from aiofabric.info import DomainAttr as DomainAttr
    from aiofabric.info import EpAttr as EpAttr
    from aiofabric.info import FabricAttr as FabricAttr
    from aiofabric.info import Hints as Hints
    from aiofabric.info import Info as Info
    from aiofabric.info import LinkAttr as LinkAttr
    from aiofabric.info import Nic as Nic
    from aiofabric.info import Parameter as Parameter
    from aiofabric.info import PciAttr as PciAttr
    from aiofabric.info import RxAttr as RxAttr
    from aiofabric.info import TxAttr as TxAttr
    from aiofabric.info import Version as Version
    from aiofabric.info import api_version as api_version
    from aiofabric.info import getinfo as getinfo
    from aiofabric.info import headers_version as headers_version
    from aiofabric.info import library_path as library_path
    from aiofabric.info import library_version as library_version
    from aiofabric.info.parameters import parameters as parameters
    from aiofabric.info.tostr import tostr as tostr
    from aiofabric.library import LibraryObject as LibraryObject
    from aiofabric.memory import MemoryRegion as MemoryRegion
    from aiofabric.remote_region import RemoteRegion as RemoteRegion
    from aiofabric.settings import EndpointSettings as EndpointSettings
    from aiofabric.transport.connect import connect as connect
    from aiofabric.transport.connect import listen as listen
    from aiofabric.transport.connect import reserve as reserve
    from aiofabric.transport.connected.endpoint import MessageEndpoint as MessageEndpoint
    from aiofabric.transport.connectionless.collective import Group as Group
    from aiofabric.transport.connectionless.endpoint import DatagramEndpoint as DatagramEndpoint
    from aiofabric.transport.connectionless.endpoint import RdmEndpoint as RdmEndpoint
    from aiofabric.transport.connectionless.multicast import MulticastGroup as MulticastGroup
    from aiofabric.transport.connectionless.open import open_endpoint as open_endpoint
    from aiofabric.transport.connectionless.scalable import ReceiveContext as ReceiveContext
    from aiofabric.transport.connectionless.scalable import ScalableEndpoint as ScalableEndpoint
    from aiofabric.transport.connectionless.scalable import TransmitContext as TransmitContext
    from aiofabric.transport.connectionless.scalable import open_scalable_endpoint as open_scalable_endpoint
    from aiofabric.transport.endpoint import EndpointStatistics as EndpointStatistics
    from aiofabric.transport.messages.batch import Batch as Batch
    from aiofabric.transport.messages.receive import Message as Message
    from aiofabric.transport.opening.options import EndpointOptions as EndpointOptions
    from aiofabric.transport.opening.shared_contexts import SharedReceive as SharedReceive
    from aiofabric.transport.opening.shared_contexts import SharedTransmit as SharedTransmit
    from aiofabric.transport.rma.remote_writes import RemoteWrite as RemoteWrite
    from aiofabric.transport.rma.triggered import Trigger as Trigger
    from aiofabric.transport.rma.triggered import XpuTrigger as XpuTrigger
    from aiofabric.transport.tagged.peek import Claim as Claim
    from aiofabric.transport.tagged.tagged import Envelope as Envelope
