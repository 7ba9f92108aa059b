"""The probes: every measurement by name, at the sizes of a run.

A probe that needs several processes is put together here: the parent kills, waits and starts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import attrs

from tests.benchmarks import measure_cold
from tests.benchmarks.children import Numbers, call, script

__all__ = ["FULL", "GROWTH", "QUICK", "Lab", "Probe", "Sizes", "probes"]

GROWTH = ("entries", "live", "sleeping", "ended", "conversations")
PEERS = {"dbos": "dbos_peer", "lg": "langgraph_peer"}


@attrs.frozen(kw_only=True)
class Sizes:
    """How much is measured."""

    one: int
    some: tuple[int, int]
    many: tuple[int, int]
    repeat: int
    raw_s: float
    waiting: int
    due_in_s: float
    peer_due_in_s: int
    sleepers: int
    answers: int
    busy: int
    ticking_s: float
    growth: tuple[int, int]
    growth_steps: int
    ended: int
    owning: Mapping[str, tuple[int, int]]
    subagents: int
    streams: tuple[int, int]
    stored_streams: tuple[int, tuple[int, int]]
    argument_kb: tuple[int, int]
    text_kb: tuple[int, int]
    watchers: int
    observed_steps: int
    pile_text: tuple[int, int]
    pile_list: tuple[int, int]
    forked: tuple[int, int]
    grown: tuple[int, int]


FULL = Sizes(
    one=1_000,
    some=(100, 50),
    many=(1_000, 10),
    repeat=3,
    raw_s=1.0,
    waiting=1_000,
    due_in_s=5.0,
    peer_due_in_s=25,
    sleepers=100_000,
    answers=1_000,
    busy=10_000,
    ticking_s=4.0,
    growth=(100, 10_000),
    growth_steps=1_000,
    ended=10_000,
    owning={"children": (1_000, 10_000), "chain": (250, 500), "subagents": (1_000, 10_000)},
    subagents=10_000,
    streams=(100, 300),
    stored_streams=(20, (5, 10)),
    argument_kb=(250, 500),
    text_kb=(2_500, 5_000),
    watchers=1_000,
    observed_steps=200,
    pile_text=(10, 10_000),
    pile_list=(10, 100_000),
    forked=(10, 100_000),
    grown=(10, 1_000),
)
QUICK = Sizes(
    one=50,
    some=(5, 10),
    many=(20, 5),
    repeat=1,
    raw_s=0.03,
    waiting=20,
    due_in_s=1.5,
    peer_due_in_s=4,
    sleepers=1_000,
    answers=5,
    busy=50,
    ticking_s=0.2,
    growth=(10, 200),
    growth_steps=20,
    ended=100,
    owning={"children": (5, 20), "chain": (5, 10), "subagents": (5, 10)},
    subagents=20,
    streams=(3, 100),
    stored_streams=(2, (1, 2)),
    argument_kb=(5, 10),
    text_kb=(5, 10),
    watchers=10,
    observed_steps=5,
    pile_text=(10, 100),
    pile_list=(10, 100),
    forked=(10, 100),
    grown=(10, 100),
)


@attrs.frozen
class Lab:
    """Where measurements put their files, and the interpreters of the peers."""

    directory: Path
    peers: Mapping[str, Path]

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A new directory on the file system of the run, gone afterwards."""
        made = Path(tempfile.mkdtemp(prefix="bench-", dir=self.directory))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


Probe = Callable[[Lab], Numbers]


def probes(sizes: Sizes) -> dict[str, Probe]:
    """Every probe by name."""
    made: dict[str, Probe] = {"raw-python": lambda _: call("measure_raw", "python", {})}
    for synchronous in ("NORMAL", "FULL"):
        for batch in (1, 256):
            made[f"raw-{synchronous}-{batch}"] = _called(
                "measure_raw",
                "transactions",
                synchronous=synchronous,
                batch=batch,
                seconds=sizes.raw_s,
            )
    shapes = {"one": (1, sizes.one), "some": sizes.some, "many": sizes.many}
    for shape, (tasks, steps) in shapes.items():
        for durability in ("process", "power"):
            for variant in ("continue", "sleep"):
                made[f"steps-{shape}-{durability}-{variant}"] = _called(
                    "measure_steps",
                    "run",
                    tasks=tasks,
                    steps=steps,
                    durability=durability,
                    variant=variant,
                    repeat=sizes.repeat,
                )
        for peer in PEERS:
            made[f"{peer}-steps-{shape}"] = _scripted(peer, "steps", tasks, steps)
    made["kill"] = partial(_kill, sizes)
    made["sleepers"] = partial(_sleepers, sizes)
    tasks, steps = sizes.many
    made["steps-many-process-tuned"] = _tuned(
        "measure_steps",
        tasks=tasks,
        steps=steps,
        durability="process",
        variant="continue",
        repeat=sizes.repeat,
    )
    made["answers"] = _called("measure_answers", "run", conversations=sizes.answers)
    made["answers-tuned"] = _tuned("measure_answers", conversations=sizes.answers)
    for who in ("conversations", "tasks"):
        looping: dict[str, object] = {
            "count": sizes.busy,
            "who": who,
            "seconds": sizes.ticking_s,
        }
        made[f"loop-{who}"] = _called("measure_loop", "run", **looping)
        made[f"loop-{who}-tuned"] = _tuned("measure_loop", **looping)
    made["raw-loop"] = lambda _: call("measure_loop", "alone", {"seconds": sizes.ticking_s})
    made["cold"] = partial(_cold, measure_cold.ours)
    made["raw-cold"] = partial(_cold, measure_cold.raw)
    made["imports"] = lambda _: {"foreign": len(measure_cold.foreign_modules())}
    for many in GROWTH:
        made[f"growth-{many}"] = _called(
            "measure_growth", "beside", many=many, counts=sizes.growth, steps=sizes.growth_steps
        )
    made["ended-memory"] = _called("measure_growth", "memory_after", tasks=sizes.ended)
    for owned, counts in sizes.owning.items():
        made[f"owning-{owned}"] = _called("measure_owning", "owning", shape=owned, counts=counts)
    made["subagents-memory"] = _called(
        "measure_owning", "memory_after_subagents", count=sizes.subagents
    )
    made |= _observing(sizes)
    for peer in PEERS:
        made[f"{peer}-kill"] = partial(_kill_peer, sizes, peer)
        made[f"{peer}-cold"] = _scripted(peer, "cold", until="first")
    return made


def _observing(sizes: Sizes) -> dict[str, Probe]:
    conversations, tokens = sizes.streams
    some, seconds = sizes.stored_streams
    steps, few = sizes.observed_steps, max(1, sizes.observed_steps // 4)
    streaming, documents, agents = (
        partial(_called, f"measure_{name}") for name in ("streaming", "documents", "agents")
    )
    return {
        "stream-live": streaming("live", conversations=conversations, tokens=tokens, per_s=1_000),
        "stream-stored": streaming("stored", conversations=some, seconds=seconds, per_s=1_000),
        "stream-argument": streaming("long", shape="argument", sizes_kb=sizes.argument_kb),
        "stream-text": streaming("long", shape="text", sizes_kb=sizes.text_kb),
        "watchers": documents("watchers", count=sizes.watchers, steps=steps),
        # Fewer, because what is measured makes the small one grow.
        "document-text": documents("appends", part="text", counts=sizes.pile_text, steps=few),
        "document-list": documents("appends", part="list", counts=sizes.pile_list, steps=few),
        "forks": documents("forks", counts=sizes.forked, steps=steps),
        "agent-grown": agents("grown", counts=sizes.grown, steps=few),
        "agent-dressed": agents("dressed", steps=steps),
        "commit-log": documents("logged", steps=steps),
    }


def _called(module: str, function: str, **arguments: object) -> Probe:
    def probe(lab: Lab) -> Numbers:
        with lab.place() as place:
            return call(module, function, {"path": str(place / "bench.sqlite"), **arguments})

    return probe


def _tuned(target: str, **arguments: object) -> Probe:
    """The same measurement, with the garbage collector set for a service."""
    return _called("measure_tuned", "run", target=target, **arguments)


def _scripted(peer: str, what: str, *numbers: int, until: str = "end") -> Probe:
    def probe(lab: Lab) -> Numbers:
        with lab.place() as place:
            return script(lab.peers[peer], PEERS[peer], place, what, *numbers, until=until)

    return probe


def _cold(measure: Callable[[Path], Numbers], lab: Lab) -> Numbers:
    with lab.place() as place:
        return measure(place)


def _kill(sizes: Sizes, lab: Lab) -> Numbers:
    with lab.place() as place:
        arguments = {"path": str(place / "bench.sqlite"), "tasks": sizes.waiting}
        parking = {**arguments, "due_in_s": sizes.due_in_s}
        parked = call("measure_waiting", "park", parking, until="parked")
        _wait_until(parked["due_s"])
        done = call("measure_waiting", "recover", arguments, until="recovered")
    return {**done, "parked_mb": parked["hwm_mb"]}


def _kill_peer(sizes: Sizes, peer: str, lab: Lab) -> Numbers:
    python, name, tasks = lab.peers[peer], PEERS[peer], sizes.waiting
    with lab.place() as place:
        parked = script(python, name, place, "park", tasks, sizes.peer_due_in_s, until="parked")
        _wait_until(parked["due_s"])
        done = script(python, name, place, "recover", tasks, until="recovered")
    return {**done, "parked_mb": parked["hwm_mb"]}


def _sleepers(sizes: Sizes, lab: Lab) -> Numbers:
    with lab.place() as place:
        arguments = {"path": str(place / "bench.sqlite"), "tasks": sizes.sleepers}
        call("measure_waiting", "build", arguments)
        return call("measure_waiting", "open_sleepers", arguments)


def _wait_until(due_s: float) -> None:
    # Nothing is measured meanwhile; what sleeps must be due before the clock starts.
    Event().wait(max(0.0, due_s - time.time()) + 0.05)
