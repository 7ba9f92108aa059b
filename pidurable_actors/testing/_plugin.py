"""The pytest plugin: crash points for tests that are stories, and virtual time for async tests.

PYTEST_DONT_REWRITE (it has no assertions, and may be imported before pytest asks for it.)

``pytest -p pidurable_actors.testing``, or ``pytest_plugins = ["pidurable_actors.testing"]`` in the
top conftest. An async test that is marked ``crash_points`` and takes `crash_world` *is* a story: it
is run, and run again from every crash point, and whatever it asserts must hold each time. The
terminal summary says what was tried.

Virtual time is for tests marked ``virtual_time``, or for all async tests when the configuration
says ``virtual_time = true``; then ``real_time`` opts out. pytest-trio installs a mock clock only
when the test itself names the fixture, and naming it for the test would share one clock between all
examples of a Hypothesis test; so the runner is replaced instead, and each run gets a clock that
jumps ahead whenever all tasks wait. A test that names a clock fixture keeps it.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import pytest
import trio
import trio.testing

from pidurable_actors.testing._explorer import explore
from pidurable_actors.testing._findings import Exploration
from pidurable_actors.testing._world import World

__all__: list[str] = []

_T = TypeVar("_T")
_OPTIONS: Final = (
    ("depth", int, "how many crashes a path may have, instead of what the test says"),
    ("budget", int, "at most so many recoveries in each test, random paths beyond one crash"),
    ("seed", int, "orders tasks and chooses random paths"),
    ("replay", str, "run just this path, as a failure printed it"),
)
_FOUND: Final = "crash_points"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that go before what the tests say."""
    group = parser.getgroup("crash points")
    for name, kind, text in _OPTIONS:
        group.addoption(f"--crash-{name}", type=kind, default=None, help=text)
    parser.addini("virtual_time", "run every async test on virtual time", "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for line in (
        "crash_points(depth=1, budget=None, ...): a story, run from every crash point; see explore",
        "virtual_time: an async test whose clock jumps ahead whenever all tasks wait",
        "real_time: an async test that runs on the real clock instead of the virtual one",
    ):
        config.addinivalue_line("markers", line)


# First, because pytest-trio adds markers in this hook and the first that names a runner wins.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make stories explorations, and async tests virtual."""
    everywhere = config.getini("virtual_time")
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if item.get_closest_marker("crash_points"):
            _make_exploration(item)
        elif item.get_closest_marker("virtual_time") or (
            everywhere and not item.get_closest_marker("real_time")
        ):
            _make_virtual(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was tried: in one line, and with ``-v`` in one more for each test."""
    found = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in getattr(report, "user_properties", ())
        if name == _FOUND
    ]
    if not found:
        return
    effects: Counter[str] = Counter()
    for _, value in found:
        effects.update(value["effects"])
    terminalreporter.section("crash points")
    if terminalreporter.verbosity > 0:
        for nodeid, value in found:
            terminalreporter.write_line(f"{nodeid}: {value['said']}{_listed(value['effects'])}")
    points, recoveries = (sum(value[of] for _, value in found) for of in ("points", "recoveries"))
    terminalreporter.write_line(
        f"{points} crash points tried with {recoveries} recoveries in {len(found)} "
        f"test{'' if len(found) == 1 else 's'}{_listed(effects)}"
    )


@pytest.fixture
def crash_world(request: pytest.FixtureRequest) -> object:
    """The `World` of a test that is marked ``crash_points``; of each of its lives another."""
    if request.node.get_closest_marker("crash_points") is None:
        raise pytest.UsageError(
            f"{request.node.nodeid} takes crash_world; mark it with @pytest.mark.crash_points()"
        )
    return None


@pytest.fixture
def crash_explore(request: pytest.FixtureRequest) -> Callable[..., Exploration]:
    """`explore`, for tests that check its report: with the command line's options, and counted."""
    return functools.partial(_explore, request.node)


# --- crash points ---


def _make_exploration(item: pytest.Function) -> None:
    marker = item.get_closest_marker("crash_points")
    assert marker is not None, "asked for by the caller"
    test = item.obj
    if not inspect.iscoroutinefunction(test) or "crash_world" not in item.fixturenames:
        raise pytest.UsageError(
            f"{item.nodeid} is marked crash_points; make it an async test that takes crash_world"
        )
    if marker.args:
        raise pytest.UsageError(f"{item.nodeid}: crash_points takes arguments by name: depth=2")
    options: Mapping[str, Any] = marker.kwargs

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        __tracebackhide__ = True  # pytest shows the test

        async def story(world: World) -> None:
            await test(**{**fixtures, "crash_world": world})

        _explore(item, story, **options)

    # What pytest-trio looks at must not be a coroutine function.
    del run.__wrapped__
    item.obj = run


def _explore(
    item: pytest.Item, story: Callable[[World], Awaitable[None]], **options: Any
) -> Exploration:
    __tracebackhide__ = True  # pytest shows the test
    for name, _, _ in _OPTIONS:
        value = item.config.getoption(f"crash_{name}")
        if value is not None:
            options[name] = value
    report = explore(story, **options)
    # Plain data, so that a distributed run can send it.
    tried = {
        "said": str(report),
        "points": report.points,
        "recoveries": report.recoveries,
        "effects": dict(report.effects),
    }
    item.user_properties.append((_FOUND, tried))
    return report


def _listed(effects: Mapping[str, int]) -> str:
    if not effects:
        return "; no effects seen"
    return "; effects seen: " + ", ".join(f"{name} x{effects[name]}" for name in sorted(effects))


# --- virtual time ---


def _make_virtual(item: pytest.Function) -> None:
    hypothesis = getattr(item.obj, "hypothesis", None)
    if hypothesis is None:
        if inspect.iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=_run_on_virtual_time))
    elif inspect.iscoroutinefunction(hypothesis.inner_test):
        # pytest-trio always gives these trio.run, so it gets to see a test that is not async.
        hypothesis.inner_test = _as_virtual_run(hypothesis.inner_test)


def _as_virtual_run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A plain function that runs `test` on a new virtual clock at each call."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        _run_on_virtual_time(functools.partial(test, *args, **kwargs))

    return run


def _run_on_virtual_time(
    main: Callable[[], Awaitable[_T]],
    *,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> _T:
    """`trio.run` with a clock that starts at 0 and jumps, unless the test brought a clock."""
    if clock is None:
        clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock, instruments=instruments)
