"""The rows of the table: what is promised, work by work, each with its goal.

Goals that name a runtime that this command cannot install (Restate) are put as the share of raw
SQLite that they were where both were measured.
"""

from __future__ import annotations

from itertools import product

from tests.benchmarks.probes import GROWTH, Sizes
from tests.benchmarks.rows import Goal, Reading, Row

__all__ = ["rows"]

_STEP_GOALS = {
    ("one", "power"): Goal(text="3 x LangGraph, 0.6 x raw", times={"lg": 3, "raw": 0.6}),
    ("one", "process"): Goal(text="10 x LangGraph", times={"lg": 10}),
    # 20,000 of 80,400 rows a second in batches, and 13,400 of 69,500.
    ("many", "process"): Goal(
        text="60 x DBOS, 10 x Restate (0.25 x raw)", times={"dbos": 60, "raw": 0.25}
    ),
    ("many", "power"): Goal(text="7 x Restate (0.19 x raw)", times={"raw": 0.19}),
}
_TUNED = ", gc tuned"
_FLAT = Goal(text="no slower beside many (0.8)", times={"raw": 0.8})
# Twice the text in half the ratio would be its square; a new base falls on one side or the other.
_LINEAR = Goal(text="linear (0.65)", times={"raw": 0.65})


def rows(sizes: Sizes) -> list[Row]:
    """All rows at the sizes of a run."""
    return [
        *_raw(),
        *_steps(sizes),
        *_waiting(sizes),
        *_answers(sizes),
        *_loop(sizes),
        *_cold(),
        *_growth(sizes),
        *_streaming(sizes),
        *_observing(sizes),
    ]


def _raw() -> list[Row]:
    what = "Python alone, a loop of a million rounds"
    return [
        _less("raw-python", what, "ms CPU", "raw-python", "loop_ms"),
        *(
            Row(
                name=f"raw-{synchronous}-{batch}",
                what=f"raw SQLite, {batch} row{'s' * (batch > 1)} per transaction, {synchronous}",
                unit="rows/s",
                better="more",
                ours=Reading(f"raw-{synchronous}-{batch}", "rate"),
            )
            for synchronous in ("NORMAL", "FULL")
            for batch in (1, 256)
        ),
    ]


def _steps(sizes: Sizes) -> list[Row]:
    shapes = {"one": (1, sizes.one), "some": sizes.some, "many": sizes.many}
    made: list[Row] = []
    for shape, (tasks, steps) in shapes.items():
        work = f"{tasks} task{'s' * (tasks > 1)} x {steps} steps"
        batch = 1 if shape == "one" else 256
        for durability, synchronous in (("process", "NORMAL"), ("power", "FULL")):
            if (shape, durability) == ("some", "power"):
                continue
            others = {
                "raw": Reading(f"raw-{synchronous}-{batch}", "rate"),
                "dbos": Reading(f"dbos-steps-{shape}", "rate"),
                "lg": Reading(f"lg-steps-{shape}", "rate"),
            }
            for variant in ("continue", "sleep"):
                probe = f"steps-{shape}-{durability}-{variant}"
                sleeping = variant == "sleep"
                made.append(
                    Row(
                        name=probe,
                        what=f"{work}, {durability}{', slept between' * sleeping}",
                        unit="steps/s",
                        better="more",
                        ours=Reading(probe, "rate"),
                        others=others,
                        goal=None if sleeping else _STEP_GOALS.get((shape, durability)),
                    )
                )
            if (shape, durability) == ("many", "process"):
                made.append(
                    Row(
                        name="steps-many-process-tuned",
                        what=f"{work}, {durability}{_TUNED}",
                        unit="steps/s",
                        better="more",
                        ours=Reading("steps-many-process-tuned", "rate"),
                        others=others,
                        goal=_STEP_GOALS[shape, durability],
                    )
                )
            probe = f"steps-{shape}-{durability}-continue"
            made.append(
                _less(f"{probe}-cpu", f"{work}, {durability}", "us CPU/step", probe, "cpu_us")
            )
    return made


def _waiting(sizes: Sizes) -> list[Row]:
    waiting, sleepers = f"{sizes.waiting:,} tasks waiting", f"{sizes.sleepers:,} tasks asleep"
    times = {peer: Reading(f"{peer}-kill", "since_start_s") for peer in ("dbos", "lg")}
    memory = {peer: Reading(f"{peer}-kill", "parked_mb") for peer in ("dbos", "lg")}
    return [
        _less(
            "kill",
            f"{waiting}: start after kill -> all done",
            "s",
            "kill",
            "since_start_s",
            0.6,
            others=times,
        ),
        _less(
            "waiting-memory",
            f"{waiting}: peak memory",
            "MB",
            "kill",
            "parked_mb",
            40,
            others=memory,
        ),
        _less("sleepers-open", f"{sleepers}: open", "s", "sleepers", "open_s", 2.0),
        _less("sleepers-memory", f"{sleepers}: peak memory", "MB", "sleepers", "hwm_mb", 150),
    ]


def _answers(sizes: Sizes) -> list[Row]:
    what = f"{sizes.answers:,} conversations: input, tool call, answer"
    return [
        Row(
            name="answers",
            what=what,
            unit="answers/s",
            better="more",
            ours=Reading("answers", "rate"),
        ),
        _less("answers-commits", what, "commits/answer", "answers", "commits", 15),
        _less("answers-cpu", what, "ms CPU/answer", "answers", "cpu_ms", 1.5),
        _less("answers-tuned-cpu", what + _TUNED, "ms CPU/answer", "answers-tuned", "cpu_ms", 1.5),
    ]


def _loop(sizes: Sizes) -> list[Row]:
    made: list[Row] = []
    for who, tuned in product(("conversations", "tasks"), ("", "-tuned")):
        what = f"ticker beside {sizes.busy:,} {who} committing{_TUNED if tuned else ''}"
        probe = f"loop-{who}{tuned}"
        for at in ("p50", "p99", "max"):
            limit = 5.0 if at == "p99" else None
            others = {"raw": Reading("raw-loop", f"{at}_ms")}
            made.append(
                _less(
                    f"{probe}-{at}", what, f"ms late, {at}", probe, f"{at}_ms", limit, others=others
                )
            )
        made.append(
            Row(
                name=f"{probe}-rate",
                what=what,
                unit="commits/s",
                better="more",
                ours=Reading(probe, "rate"),
                others={"raw": Reading("raw-NORMAL-256", "rate")},
            )
        )
    return made


def _cold() -> list[Row]:
    others = {
        "raw": Reading("raw-cold", "seconds"),
        "dbos": Reading("dbos-cold", "since_start_s"),
        "lg": Reading("lg-cold", "since_start_s"),
    }
    return [
        _less("cold", "cold start to the first commit", "s", "cold", "seconds", 0.2, others=others),
        _less("imports", "SDKs, drivers, servers imported", "modules", "imports", "foreign", 0),
    ]


def _growth(sizes: Sizes) -> list[Row]:
    few, many = sizes.growth
    made = [
        Row(
            name=f"growth-{kind}",
            what=f"commit beside {many:,} {_NAMES[kind]} (raw: {few:,})",
            unit="us CPU/commit",
            better="less",
            ours=Reading(f"growth-{kind}", "many_us"),
            others={"raw": Reading(f"growth-{kind}", "few_us")},
            goal=_FLAT,
        )
        for kind in GROWTH
    ]
    what = f"left in memory by {sizes.ended:,} ended tasks"
    return [
        *made,
        _less("ended-blocks", what, "blocks/1000 tasks", "ended-memory", "blocks", 50),
        _less("ended-resident", what, "KB/1000 tasks", "ended-memory", "resident_kb"),
        *_owning(sizes),
    ]


def _owning(sizes: Sizes) -> list[Row]:
    what = f"left in memory by {sizes.subagents:,} ended subagents"
    return [
        *(
            Row(
                name=f"owning-{shape}",
                what=f"{_OWNING[shape]}, {many:,} (raw: {few:,})",
                unit="us CPU each",
                better="less",
                ours=Reading(f"owning-{shape}", "many_us"),
                others={"raw": Reading(f"owning-{shape}", "few_us")},
                goal=_FLAT,
            )
            for shape, (few, many) in sizes.owning.items()
        ),
        _less("subagents-blocks", what, "blocks/1000", "subagents-memory", "blocks", 50),
    ]


def _streaming(sizes: Sizes) -> list[Row]:
    conversations, tokens = sizes.streams
    some, (short_s, long_s) = sizes.stored_streams
    what = f"{conversations} watched streams of 1,000 tokens/s, {tokens:,} each"
    virtual = f"{some} watched streams of 1,000 tokens/s for {long_s} s (raw: {short_s} s)"
    made = [
        _less(
            "stream-cpu",
            f"{what} (raw: provider alone)",
            "us CPU/token",
            "stream-live",
            "cpu_us",
            others={"raw": Reading("stream-live", "alone_us")},
        ),
        _less("stream-p50", what, "ms until seen, p50", "stream-live", "p50_ms"),
        _less("stream-p99", what, "ms until seen, p99", "stream-live", "p99_ms"),
        _less("stream-max", what, "ms until seen, max", "stream-live", "max_ms"),
        Row(
            name="stream-rate",
            what=what,
            unit="tokens/s in all",
            better="more",
            ours=Reading("stream-live", "rate"),
        ),
        _less("stream-writes", virtual, "writes/stream/s", "stream-stored", "writes", 2),
        _beside("stream-bytes", virtual, "bytes written/char", "stream-stored", "bytes", _LINEAR),
    ]
    for shape, (few, many) in (("argument", sizes.argument_kb), ("text", sizes.text_kb)):
        long = f"one {shape} of {many:,} KB in pieces of 40 (raw: {few:,} KB)"
        probe = f"stream-{shape}"
        made.append(_beside(f"{probe}-cpu", long, "us CPU/KB", probe, "us"))
        made.append(_beside(f"{probe}-bytes", long, "bytes written/char", probe, "bytes", _LINEAR))
    return made


def _observing(sizes: Sizes) -> list[Row]:
    what = f"commits to a conversation with {sizes.watchers:,} watchers (raw: none)"
    made = [
        Row(
            name="watchers",
            what=what,
            unit="commits/s",
            better="more",
            ours=Reading("watchers", "rate"),
            others={"raw": Reading("watchers", "alone")},
            goal=_FLAT,
        ),
        _less("watchers-frames", what, "frames built/commit", "watchers", "frames", 1),
    ]
    for part, (few, many) in (("text", sizes.pile_text), ("list", sizes.pile_list)):
        append = f"append 100 characters to a {part} of {many:,} times that (raw: {few:,})"
        probe = f"document-{part}"
        made.append(_beside(f"{probe}-cpu", append, "us CPU/commit", probe, "us"))
        made.append(_beside(f"{probe}-bytes", append, "bytes written/commit", probe, "bytes"))
    few, many = sizes.forked
    forked = f"fork a conversation of {many:,} entries, read, write (raw: {few:,})"
    made.append(_beside("forks", forked, "us CPU/fork", "forks", "us"))
    few, many = sizes.grown
    grown = f"an answer in a conversation of {many:,} entries (raw: {few:,})"
    made.append(_beside("agent-grown", grown, "us CPU/answer", "agent-grown", "us", goal=None))
    full = "an answer with a call, with hooks, a section and a budget (raw: plain)"
    made.append(_beside("agent-dressed", full, "us CPU/answer", "agent-dressed", "us", goal=None))
    log = "commit with the log of commits (raw: without)"
    made.append(_beside("commit-log", log, "us CPU/commit", "commit-log", "us", goal=None))
    return made


def _beside(
    name: str, what: str, unit: str, probe: str, field: str, goal: Goal | None = _FLAT
) -> Row:
    """How much is compared with how little."""
    return Row(
        name=name,
        what=what,
        unit=unit,
        better="less",
        ours=Reading(probe, f"many_{field}"),
        others={"raw": Reading(probe, f"few_{field}")},
        goal=goal,
    )


_OWNING = {
    "children": "live children of one owner: made, run, aborted",
    "chain": "a chain of owned tasks: built, aborted from the top",
    "subagents": "conversations that a task owns, one after another",
}


_NAMES = {
    "entries": "entries",
    "live": "running tasks",
    "sleeping": "sleeping tasks",
    "ended": "ended tasks",
    "conversations": "conversations",
}


def _less(
    name: str,
    what: str,
    unit: str,
    probe: str,
    field: str,
    limit: float | None = None,
    *,
    others: dict[str, Reading] | None = None,
) -> Row:
    goal = None if limit is None else Goal(text=f"at most {limit:g}", limit=limit)
    return Row(
        name=name,
        what=what,
        unit=unit,
        better="less",
        ours=Reading(probe, field),
        others=others or {},
        goal=goal,
    )
