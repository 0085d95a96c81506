"""libfabric's constants as families of flags and choices; each member is documented.

A member's name is libfabric's without the family's prefix: ``FI_EP_MSG`` is ``EndpointType.MSG``. The values come from
the headers that aiofabric was built with, so no libfabric is needed at run time. A member that those headers lack
raises an AttributeError that says so; check with ``"RESCAN" in GetInfoFlags.__members__``.
"""

from .atomics import AtomicForm as AtomicForm
from .atomics import AtomicOp as AtomicOp
from .atomics import CollectiveOp as CollectiveOp
from .atomics import Datatype as Datatype
from .atomics import DeferredOp as DeferredOp
from .atomics import TriggerEvent as TriggerEvent
from .attributes import AddressFormat as AddressFormat
from .attributes import AvType as AvType
from .attributes import BusType as BusType
from .attributes import EndpointType as EndpointType
from .attributes import HmemIface as HmemIface
from .attributes import LinkState as LinkState
from .attributes import ParameterType as ParameterType
from .attributes import Progress as Progress
from .attributes import Protocol as Protocol
from .attributes import ResourceManagement as ResourceManagement
from .attributes import Threading as Threading
from .attributes import TrafficClass as TrafficClass
from .capabilities import Access as Access
from .capabilities import Caps as Caps
from .capabilities import GetInfoFlags as GetInfoFlags
from .capabilities import Mode as Mode
from .capabilities import MrMode as MrMode
from .capabilities import Order as Order
from .family import Choice as Choice
from .family import Flags as Flags
from .objects import ControlCommand as ControlCommand
from .objects import CounterEvents as CounterEvents
from .objects import CqFormat as CqFormat
from .objects import CqWaitCond as CqWaitCond
from .objects import EndpointOption as EndpointOption
from .objects import EqEvent as EqEvent
from .objects import HmemP2P as HmemP2P
from .objects import TostrType as TostrType
from .objects import WaitObject as WaitObject
from .operations import AvFlags as AvFlags
from .operations import AvSetFlags as AvSetFlags
from .operations import Bind as Bind
from .operations import CompletionFlags as CompletionFlags
from .operations import MrFlags as MrFlags
from .operations import OpFlags as OpFlags
