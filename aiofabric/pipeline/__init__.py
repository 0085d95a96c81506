"""Layer 5: pipelines, which stream items between processes and hosts over a fabric.

* `push`, `pull`: each item goes to one consumer; `publish`, `subscribe`: to all that asked for its topic
* `deduplicate`: notices items that came twice; `places`: how the ends find each other; `statistics`
* `runtime`: the protocol on endpoints; `protocol`: what both ends say, without I/O
"""

from .deduplicate import Deduplicate as Deduplicate
from .places import PlaceFolder as PlaceFolder
from .publish import Publish as Publish
from .pull import Pull as Pull
from .push import Push as Push
from .runtime.item import Item as Item
from .runtime.item import Items as Items
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
    "Items",
    "LinkStatistics",
    "PlaceFolder",
    "Publication",
    "Publish",
    "PublishStatistics",
    "Pull",
    "PullStatistics",
    "Push",
    "PushStatistics",
    "Subscribe",
    "SubscribeStatistics",
    "SubscriberStatistics",
    "SubscriberTooSlowError",
]
