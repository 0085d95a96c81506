"""Pipeline: a graph of stages, as a program writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from ...arguments import check_count, check_number, check_type
from ...transport.opening.keywords import stream_options
from .drawing import mermaid, svg
from .graph import Input, IteratorSource, Kind, OnError, Stage
from .keywords import RUN_OPTIONS, OrderKeywords, StageKeywords, check_keywords
from .plan import planned
from .processes.dask_actor import check_client
from .run import Run
from .totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from .keywords import RunKeywords
    from .plan import Node

__all__ = ["Pipeline"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Pipeline:
    """A graph of stages: a source, stages that each get the values of the one before, and a sink.

    Each method returns a new pipeline, which has one stage more; a pipeline itself never changes, and may run often ::

        thumbnails = Pipeline(read_images).map(shrink, workers=4, process=True)
        pipeline = thumbnails.batch(32).sink(write)
        totals = await pipeline.run()

    A stage takes values from a bounded queue, so one that is slow makes those before it wait, up to the source.

    The stages of one run are tasks of this process. ``process=True`` puts one into worker processes, and
    ``run(processes=True)`` every stage; push and pull join them then. A process that dies is started again, and gets
    what it had not finished: a value may be handled twice (see `Push`). Functions and values are sent to processes by
    pickle, so functions stand at the top of a module. A large array comes without a copy, and is read-only.

    ``source``: an async generator function, a function that returns an iterable, or an iterable. An iterator, such as a
    generator object, can be read by one run only: the next one raises RuntimeError.
    ``name``: of the source, in totals and errors; by default its function's.
    """

    _ends: tuple[Input, ...]
    _sinks: tuple[Input, ...]

    def __init__(self, source: Any, *, name: str | None = None, process: bool = False) -> None:
        if not (callable(source) or hasattr(source, "__aiter__") or hasattr(source, "__iter__")):
            raise TypeError(f"a source is an async generator function, a function or an iterable, not {source!r:.100}")
        name = _name(source, name, "source")
        if not callable(source) and (hasattr(source, "__anext__") or hasattr(source, "__next__")):
            source = IteratorSource(source)
        stage = Stage(Kind.SOURCE, name, source, process=_flag("process", process))
        object.__setattr__(self, "_ends", (Input(stage),))
        object.__setattr__(self, "_sinks", ())

    def map(self, function: Callable[[Any], Any], **options: Unpack[OrderKeywords]) -> Pipeline:
        """Give what the function returns for each value.

        Args:
            function: async, or a plain function that is quick. A plain one that takes long blocks the event loop of its
                process: use ``process=True``.
            workers: values that are handled at the same time: by tasks, or by processes (1).
            ordered: whether results keep the order of the values (True); without it, a slow value delays no other.
            on_error: ``"fail"`` (the default): an exception ends the pipeline, with a `StageError`. ``"skip"``: the
                value is logged (as a warning) and counted. A function, async or plain: it is called with the value and
                the exception, in the process of the stage. A result that cannot be sent to another process is such an
                exception.
            process: whether the workers are processes (False).
            queue: values that may wait in front of the stage, for each worker (32).
            name: in totals and errors; by default the function's.
        """
        return self._stage(Kind.MAP, function, options, OrderKeywords)

    def flat_map(self, function: Callable[[Any], Any], **options: Unpack[OrderKeywords]) -> Pipeline:
        """Give each value of what the function returns: an async generator, a generator, or any iterable.

        With several worker processes the order is not kept: say ``ordered=False``. The options are those of `map`.
        """
        return self._stage(Kind.FLAT_MAP, function, options, OrderKeywords)

    def filter(self, function: Callable[[Any], Any], **options: Unpack[OrderKeywords]) -> Pipeline:
        """Give the values for which the function returns true. The options are those of `map`."""
        return self._stage(Kind.FILTER, function, options, OrderKeywords)

    def batch(self, size: int, *, seconds: float | None = None, name: str | None = None) -> Pipeline:
        """Give lists of ``size`` values. The last one may be shorter, and one whose first value is older than
        ``seconds``.
        """
        check_count("size", size, 32)
        if seconds is not None:
            check_type("seconds", seconds, float, int)
            if not seconds > 0:
                raise ValueError(f"seconds must be more than 0, not {seconds}")
        return self._then(Kind.BATCH, None, name or "batch", size=size, seconds=seconds)

    def window(self, size: int, *, step: int = 1, name: str | None = None) -> Pipeline:
        """Give lists of ``size`` values that follow each other; each begins ``step`` values after the one before."""
        check_count("size", size, 32)
        check_count("step", step, 32)
        return self._then(Kind.WINDOW, None, name or "window", size=size, step=step)

    def merge(self, *others: Pipeline) -> Pipeline:
        """The values of several pipelines, as they come."""
        if not others:
            raise ValueError("merge needs at least one other pipeline")
        for each in others:
            check_type("a pipeline to merge", each, Pipeline)
        return self._with(
            tuple(end for each in (self, *others) for end in each._ends),
            tuple(dict.fromkeys(sink for each in (self, *others) for sink in each._sinks)),
        )

    def route(
        self,
        key: Callable[[Any], Any],
        branches: Mapping[Any, Callable[[Pipeline], Pipeline]],
        *,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Pipeline:
        """Give each value to the branch that its key names.

        Each branch is a function that gets a pipeline and adds stages. Those that do not end with a sink are merged. A
        key without a branch is an error of the stage; see ``on_error`` of `map`.
        """
        check_type("branches", branches, Mapping)
        if not branches:
            raise ValueError("route needs at least one branch")
        for each, branch in branches.items():
            if not callable(branch):
                raise TypeError(
                    f"the branch {each!r:.100} must be a function that gets a pipeline and adds stages, "
                    f"not {branch!r:.100}"
                )
        routed = self._then(Kind.ROUTE, key, name, keys=tuple(branches), on_error=on_error)
        (end,) = routed._ends
        made = []
        for at, branch in enumerate(branches.values()):
            made.append(branch(self._with((Input(end.stage, at),), self._sinks)))
            check_type("the result of a branch", made[-1], Pipeline)
        first, *others = made
        return first.merge(*others) if others else first

    def sink(self, function: Callable[[Any], Any], **options: Unpack[StageKeywords]) -> Pipeline:
        """Call the function with each value; it is the end. The options are those of `map`, without
        ``ordered``."""
        ended = self._stage(Kind.SINK, function, options, StageKeywords, ordered=False)
        return self._with((), (*self._sinks, *ended._ends))

    # -- running

    def start(self, **options: Unpack[RunKeywords]) -> Run:
        """A run of this pipeline: ``async with pipeline.start() as run:``. The block's end waits for the run's.

        Args:
            processes: whether every stage works in processes of its own (False).
            workers: numbers of workers by the names of stages, instead of those in the graph.
            restarts: how often each worker process may be started again after it has died (3).
            host: the address of this machine at which processes listen for each other (127.0.0.1).
            provider: by name, such as ``"tcp"`` or ``"shm"``.
            options: of the connections, such as ``heartbeat=``; see `EndpointOptions`.
        """
        return self._started("start", options)

    def on(self, client: Any, **options: Unpack[RunKeywords]) -> Run:
        """A run whose workers are actors of a Dask cluster: ``async with pipeline.on(client) as run:``.

        Dask places each worker of each stage, shows it, and keeps its memory; a worker that leaves is replaced. Values
        go from worker to worker over the fabric, never through the scheduler. Functions are sent by cloudpickle.

        Args:
            client: ``await distributed.Client(address, asynchronous=True)``.
            processes: whether every stage works on the cluster (True); False: those with ``process=True``.
            host: the address of this machine at which its stages listen for the cluster, if there are any.
            workers, restarts, provider, options: as for `start`.
        """
        check_client(client)
        return self._started("on", {"processes": True, **options}, client)

    async def run(self, **options: Unpack[RunKeywords]) -> Totals:
        """Run this pipeline to its end, and return its totals. The options are those of `start`.

        Cancelling ends all stages and processes at once. Values that are on their way are lost.

        Raises:
            StageError: a stage has failed. Its cause is the function's exception, if pickle can copy that.
        """
        async with self._started("run", options) as run:
            pass
        return run.totals()

    def draw(
        self,
        form: Literal["mermaid", "svg"] = "mermaid",
        *,
        processes: bool = False,
        workers: Mapping[str, int] | None = None,
        totals: Totals | None = None,
    ) -> str:
        """The graph as text for Mermaid, or as an SVG picture. Dashed stages of a picture are in processes.

        Args:
            form: ``"mermaid"`` or ``"svg"``.
            processes, workers: as for `start`.
            totals: of `Run.totals` or `run`: the numbers and rates of the stages are shown, too.
        """
        if form not in ("mermaid", "svg"):
            raise ValueError(f"form must be 'mermaid' or 'svg', not {form!r}")
        if totals is not None:
            check_type("totals", totals, Totals)
        nodes = self._planned(processes, workers)
        return (mermaid if form == "mermaid" else svg)(nodes, totals)

    def _started(self, method: str, options: RunKeywords, client: Any = None) -> Run:
        connections: dict[str, Any] = {**options}
        processes, workers = connections.pop("processes", False), connections.pop("workers", None)
        restarts, host = connections.pop("restarts", 3), connections.pop("host", "127.0.0.1")
        provider = connections.pop("provider", None)
        stream_options(f"Pipeline.{method}", connections, own=RUN_OPTIONS)
        check_number("restarts", restarts, 32)
        check_type("host", host, str)
        if provider is not None:
            check_type("provider", provider, str)
        nodes = self._planned(processes, workers)
        return Run(nodes, host=host, restarts=restarts, options={**connections, "provider": provider}, client=client)

    def _planned(self, processes: bool, workers: Mapping[str, int] | None) -> list[Node]:
        if workers is not None and not isinstance(workers, Mapping):
            raise TypeError(f"workers must be a dict of numbers by the names of stages, not {workers!r:.100}")
        return planned((*self._sinks, *self._ends), workers or {}, processes=_flag("processes", processes))

    # -- building

    def _stage(
        self, kind: Kind, function: Any, options: Mapping[str, Any], known: type[StageKeywords], **fixed: Any
    ) -> Pipeline:
        check_keywords(kind.value, options, known)
        chosen: dict[str, Any] = {**options, **fixed}
        return self._then(kind, function, chosen.pop("name", None), **chosen)

    def _then(self, kind: Kind, function: Any, name: str | None, **options: Any) -> Pipeline:
        if not self._ends:
            raise ValueError("this pipeline has ended with a sink")
        if function is not None and not callable(function):
            raise TypeError(f"the function of a stage must be callable, not {function!r:.100}")
        if kind not in (Kind.SOURCE, Kind.FLAT_MAP) and _is_generator(function):
            cure = "use flat_map" if kind == Kind.MAP else "return instead of yield"
            raise TypeError(f"the function of {kind.value}() is a generator, which nothing would run: {cure}")
        stage = Stage(kind, _name(function, name, kind.value), function, self._ends, **options)
        stage.check()
        return self._with((Input(stage),), self._sinks)

    def _with(self, ends: tuple[Input, ...], sinks: tuple[Input, ...]) -> Self:
        pipeline = object.__new__(type(self))
        object.__setattr__(pipeline, "_ends", ends)
        object.__setattr__(pipeline, "_sinks", sinks)
        return pipeline


def _is_generator(function: Any) -> bool:
    return any(
        isgeneratorfunction(each) or isasyncgenfunction(each)
        for each in (function, getattr(function, "func", None), getattr(function, "__call__", None))  # noqa: B004
    )


def _name(function: Any, name: str | None, otherwise: str) -> str:
    if name is not None:
        check_type("name", name, str)
        return name
    found = getattr(function, "__name__", None) or getattr(getattr(function, "func", None), "__name__", None)
    return found if isinstance(found, str) and found.isidentifier() else otherwise


def _flag(name: str, value: Any) -> bool:
    check_type(name, value, bool)
    return bool(value)
