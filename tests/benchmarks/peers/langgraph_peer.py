"""LangGraph with the SQLite saver: ``langgraph_peer.py DIRECTORY WHAT NUMBER...``.

The same arguments as of ``dbos_peer.py``, run by an interpreter that has it. Checkpoints are
synchronous, the one of its modes in which a step is durable before the next begins. What waits is
interrupted before its last node; the sync saver has no durable sleep.
"""

import importlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

from tests.benchmarks.child import emit, vm_kb

graph: Any = importlib.import_module("langgraph.graph")
sqlite: Any = importlib.import_module("langgraph.checkpoint.sqlite")

THREADS = 100


class State(TypedDict):
    """How far the graph is, and how far it goes."""

    at: int
    end: int


def _step(state: State) -> dict[str, int]:
    return {"at": state["at"] + 1}


def _where(state: State) -> str:
    return "step" if state["at"] < state["end"] else "last"


def _app(saver: Any, *, interrupted: bool = False) -> Any:
    built = graph.StateGraph(State)
    built.add_node("step", _step)
    built.add_edge(graph.START, "step")
    if interrupted:
        built.add_node("last", _step)
        built.add_edge("step", "last")
        built.add_edge("last", graph.END)
        return built.compile(checkpointer=saver, interrupt_before=["last"])
    built.add_conditional_edges("step", _where, {"step": "step", "last": graph.END})
    return built.compile(checkpointer=saver)


def _invoke(app: Any, thread: str, state: State | None, limit: int = 25) -> int:
    config = {"configurable": {"thread_id": thread}, "recursion_limit": limit}
    result: int = app.invoke(state, config, durability="sync")["at"]
    return result


def _all(count: int, run: Callable[[int], int]) -> list[int]:
    if count == 1:
        return [run(0)]
    with ThreadPoolExecutor(min(count, THREADS)) as pool:
        return list(pool.map(run, range(count)))


def steps(saver: Any, workflows: int, count: int) -> None:
    app = _app(saver)
    _invoke(app, "warm", State(at=0, end=1))
    began_s = time.perf_counter()
    results = _all(
        workflows, lambda at: _invoke(app, f"t{at}", State(at=0, end=count), limit=count + 10)
    )
    took_s = time.perf_counter() - began_s
    assert results == [count] * workflows
    emit("end", {"rate": workflows * count / took_s})


def park(saver: Any, workflows: int, seconds: int) -> None:
    app = _app(saver, interrupted=True)
    _all(workflows, lambda at: _invoke(app, f"t{at}", State(at=0, end=2)))
    emit("parked", {"due_s": time.time(), "hwm_mb": vm_kb("VmHWM") / 1024})
    threading.Event().wait()


def recover(saver: Any, workflows: int) -> None:
    app = _app(saver, interrupted=True)
    saver.setup()
    rows = saver.conn.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchall()
    threads = [row[0] for row in rows]
    assert len(threads) == workflows
    results = _all(workflows, lambda at: _invoke(app, threads[at], None))
    assert results == [2] * workflows
    emit("recovered", {"hwm_mb": vm_kb("VmHWM") / 1024})


if __name__ == "__main__":
    path = Path(sys.argv[1]) / "langgraph.sqlite"
    what, numbers = sys.argv[2], [int(text) for text in sys.argv[3:]]
    with sqlite.SqliteSaver.from_conn_string(str(path)) as saver:
        if what == "steps":
            steps(saver, *numbers)
        elif what == "park":
            park(saver, *numbers)
        elif what == "recover":
            recover(saver, *numbers)
        else:
            _invoke(_app(saver), "t0", State(at=0, end=1))
            emit("first", {})
