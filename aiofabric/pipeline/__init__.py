"""Layer 5: pipelines, which stream items between processes and hosts over a fabric.

* `push`, `pull`: each item goes to one consumer; `publish`, `subscribe`: to all that asked for its topic
* `deduplicate`: notices items that came twice; `places`: how the ends find each other; `statistics`
* `stages`: a graph of functions on top of push and pull; `objects`: Python objects as items
* `runtime`: the protocol on endpoints; `protocol`: what both ends say, without I/O
"""

from .deduplicate import Deduplicate as Deduplicate
from .objects import MsgspecObjects as MsgspecObjects
from .objects import Objects as Objects
from .objects import PickleObjects as PickleObjects
from .places import PlaceFolder as PlaceFolder
from .publish import Publish as Publish
from .pull import Pull as Pull
from .push import Push as Push
from .runtime.item import Item as Item
from .runtime.item import Items as Items
from .runtime.memory.item_pool import ItemPool as ItemPool
from .runtime.watching import watch as watch
from .stages.pipeline import Pipeline as Pipeline
from .stages.run import Run as Run
from .stages.totals import StageError as StageError
from .stages.totals import StageTotals as StageTotals
from .stages.totals import Totals as Totals
from .statistics import LinkStatistics as LinkStatistics
from .statistics import PublishStatistics as PublishStatistics
from .statistics import PullStatistics as PullStatistics
from .statistics import PushStatistics as PushStatistics
from .statistics import SubscriberStatistics as SubscriberStatistics
from .statistics import SubscribeStatistics as SubscribeStatistics
from .subscribe import Publication as Publication
from .subscribe import Subscribe as Subscribe
from .subscribe import SubscriberTooSlowError as SubscriberTooSlowError

__all__ = [
    "Deduplicate",
    "Item",
    "ItemPool",
    "Items",
    "LinkStatistics",
    "MsgspecObjects",
    "Objects",
    "PickleObjects",
    "Pipeline",
    "PlaceFolder",
    "Publication",
    "Publish",
    "PublishStatistics",
    "Pull",
    "PullStatistics",
    "Push",
    "PushStatistics",
    "Run",
    "StageError",
    "StageTotals",
    "Subscribe",
    "SubscribeStatistics",
    "SubscriberStatistics",
    "SubscriberTooSlowError",
    "Totals",
    "watch",
]
