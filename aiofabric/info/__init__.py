"""Discovery of the offers of the machine's providers (man page: fi_getinfo)."""

from .attributes import SHARED_CONTEXT as SHARED_CONTEXT
from .attributes import DomainAttr as DomainAttr
from .attributes import EpAttr as EpAttr
from .attributes import FabricAttr as FabricAttr
from .attributes import RxAttr as RxAttr
from .attributes import TxAttr as TxAttr
from .discovery import Info as Info
from .discovery import check_info as check_info
from .discovery import getinfo as getinfo
from .hints import Hints as Hints
from .nic import DeviceAttr as DeviceAttr
from .nic import LinkAttr as LinkAttr
from .nic import Nic as Nic
from .nic import PciAttr as PciAttr
from .parameters import Parameter as Parameter
from .parameters import parameters as parameters
from .tostr import tostr as tostr
from .versions import Version as Version
from .versions import api_version as api_version
from .versions import headers_version as headers_version
from .versions import library_path as library_path
from .versions import library_version as library_version
