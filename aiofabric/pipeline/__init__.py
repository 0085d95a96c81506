"""Layer 5: pipelines, which stream items between processes and hosts over a fabric.

* `push`, `pull`: the two ends; `item`: what a consumer gets
* `deduplicate`: notices items that came twice; `places`: how the ends find each other
* `connection`: one connection; `connector`: listens and connects for an end; `lent_memory`: memory of large items
* `protocol`: what both ends say, without I/O
"""

from .deduplicate import Deduplicate as Deduplicate
from .places import PlaceFolder as PlaceFolder
from .pull import Pull as Pull
from .push import Push as Push
from .runtime.item import Item as Item
from .runtime.item import Items as Items
from .statistics import LinkStatistics as LinkStatistics
from .statistics import PullStatistics as PullStatistics
from .statistics import PushStatistics as PushStatistics

__all__ = [
    "Deduplicate",
    "Item",
    "Items",
    "LinkStatistics",
    "PlaceFolder",
    "Pull",
    "PullStatistics",
    "Push",
    "PushStatistics",
]
