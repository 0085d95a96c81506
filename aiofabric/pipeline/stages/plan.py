"""The plan of a run: which stage works where, how often, and what joins it to its neighbours.

A stage is in this process (``processes`` is 0), or in worker processes of its own. An ordered stage with several
processes needs one producer, which numbers its values, and one consumer of its results alone, which sorts them; the
plan puts a relay into this process where there are more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from .graph import Kind, Stage, named, stages_of
from .traces import current_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .graph import Input

__all__ = ["Node", "WorkOrder", "planned"]


@dataclass(eq=False)
class Node:
    """A stage in a run. ``outputs``: for each branch, the nodes that get its values."""

    stage: Stage
    name: str
    processes: int
    workers: int
    inputs: list[Node] = field(default_factory=list)
    outputs: list[list[Node]] = field(default_factory=list)

    @property
    def numbers(self) -> bool:
        """Whether its processes say which value each result was made of."""
        return self.processes > 1 and self.stage.ordered and self.stage.kind in (Kind.MAP, Kind.FILTER)

    @property
    def givers(self) -> list[Node]:
        return list(dict.fromkeys(self.inputs))

    @property
    def takers(self) -> list[Node]:
        return list(dict.fromkeys(node for branch in self.outputs for node in branch))

    @property
    def sorts_from(self) -> Node | None:
        """The ordered stage with several processes that gives it its values; it gives them to no other."""
        return next((each for each in self.inputs if each.numbers), None)

    @property
    def is_here(self) -> bool:
        return not self.processes

    @property
    def takes_here(self) -> bool:
        """Whether its values come from stages of this process only, through a queue."""
        return self.is_here and all(each.is_here for each in self.inputs)

    @cached_property
    def holds(self) -> int:
        """Values of this stage that it and those behind it may hold before the first one is finished.

        A batch of batches holds many. If a process before it could have fewer values under way, it would wait for ever.
        """
        behind = max((each.holds for each in self.takers), default=1)
        stage = self.stage
        if stage.kind == Kind.BATCH:
            return stage.size * behind
        if stage.kind == Kind.WINDOW:
            return stage.size + stage.step * (behind - 1)
        return behind

    @property
    def window(self) -> int:
        """Values that one of its processes may have, and not have finished."""
        return self.stage.queue + self.holds

    def order(self) -> WorkOrder:
        """The part of the plan that a process needs to work on this stage."""
        sorts_from = self.sorts_from
        fed = [each for each in self.takers if each.numbers]
        return WorkOrder(
            stage=replace(self.stage, inputs=()),
            name=self.name,
            tasks=1 if self.processes else self.workers,
            branches=tuple(tuple(each.name for each in branch) for branch in self.outputs),
            numbers=self.numbers,
            sorts=sorts_from is not None,
            shares={each.name: each.processes for each in self.takers if each.processes > 1},
            limits={each.name: each.window * each.workers for each in fed},
            window=self.window if sorts_from is None else max(self.window, sorts_from.window * sorts_from.workers),
            producers=sum(max(1, each.processes) for each in self.givers),
            trace=current_trace(),
        )


@dataclass(frozen=True)
class WorkOrder:
    """One stage's part of a plan, which is sent to its processes.

    ``sorts``: its values come from an ordered stage with several processes. ``shares``: how many processes share its
    values, by the names of stages with several. ``limits``: how many values may be under
    way to such a stage, so that none of its processes waits for the room that results of others take. ``window``:
    values that a process may have, and not have finished. ``producers``: processes that give it values. ``restarts``:
    how many processes had this part before, and have died. ``trace``: that of the code that runs the pipeline.
    """

    stage: Stage
    name: str
    tasks: int
    branches: tuple[tuple[str, ...], ...]
    numbers: bool
    sorts: bool
    shares: Mapping[str, int]
    limits: Mapping[str, int]
    window: int
    producers: int
    restarts: int = 0
    trace: bytes = b""


def planned(ends: tuple[Input, ...], workers: Mapping[str, int], *, processes: bool) -> list[Node]:
    """The nodes of a run; each is behind those that it gets values from.

    ``workers`` replaces the numbers of workers of stages by their names.
    """
    stages = stages_of(ends)
    names = named(stages)
    unknown = set(workers) - set(names.values())
    if unknown:
        raise ValueError(f"no stage has the name {min(unknown)!r}; there are {', '.join(names.values())}")
    nodes: dict[Stage, Node] = {}
    for stage in stages:
        count = workers.get(names[stage], stage.workers)
        stage.check_workers(count)
        in_processes = processes or stage.process
        if in_processes:
            stage.check_process(names[stage])
        if in_processes and count > 1 and stage.ordered and stage.kind == Kind.FLAT_MAP:
            raise ValueError(f"several processes of {names[stage]!r} keep no order: pass ordered=False to flat_map")
        nodes[stage] = Node(stage, names[stage], count if in_processes else 0, count)
    for stage, node in nodes.items():
        node.outputs = [[] for _ in stage.keys or (None,)]
        for each in stage.inputs:
            node.inputs.append(nodes[each.stage])
            nodes[each.stage].outputs[each.branch].append(node)
    found = list(nodes.values())
    for node in list(found):
        if node.numbers:
            _put_relays(node, found)
    return found  # from here on, nothing changes: `Node.holds` is kept


def _put_relays(node: Node, nodes: list[Node]) -> None:
    """Give an ordered stage with several processes one producer and one consumer."""
    if sum(max(1, each.processes) for each in node.givers) > 1:
        relay = _relay(f"before {node.name}", nodes)
        relay.inputs, relay.outputs = node.inputs, [[node]]
        for giver in node.givers:
            giver.outputs = [[relay if each is node else each for each in branch] for branch in giver.outputs]
        node.inputs = [relay]
        nodes.insert(nodes.index(node), relay)
    takers = node.takers
    if takers and (len(takers) > 1 or takers[0].processes > 1 or len(takers[0].givers) > 1):
        relay = _relay(f"behind {node.name}", nodes)
        relay.inputs, relay.outputs = [node], node.outputs
        for taker in takers:
            taker.inputs = [relay if each is node else each for each in taker.inputs]
        node.outputs = [[relay]]
        nodes.insert(nodes.index(node) + 1, relay)


def _relay(name: str, nodes: list[Node]) -> Node:
    while any(each.name == name for each in nodes):  # a program may have a stage of this name
        name += "'"
    return Node(Stage(Kind.MAP, name, _same), name, 0, 1)


def _same(value: object) -> object:
    return value
