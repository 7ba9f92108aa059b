"""Virtual time for every async test that is not about real time.

pytest-trio installs a clock only when the test itself names a clock fixture. Naming one for the
test would share that clock between all examples of a Hypothesis test; so the runner is replaced
instead, and each run gets a new clock that jumps ahead whenever all tasks wait. A test that names a
clock fixture keeps it. A test that waits for threads, processes or sockets is marked ``real_time``:
to the virtual clock a task that waits for the world looks idle, and its timeouts fire at once.

``tests/project/test_virtual_clock.py`` pins all of this.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
import trio
import trio.testing

_T = TypeVar("_T")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "real_time: an async test that runs on the real clock instead of the virtual one"
    )


# First, because pytest-trio adds markers in this hook and the first that names a runner wins.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and not item.get_closest_marker("real_time"):
            make_virtual(item)


def make_virtual(item: pytest.Function) -> None:
    """Let an async test, or each example of an async Hypothesis test, run on virtual time."""
    hypothesis = getattr(item.obj, "hypothesis", None)
    if hypothesis is None:
        if inspect.iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=run_on_virtual_time))
    elif inspect.iscoroutinefunction(hypothesis.inner_test):
        # pytest-trio always gives these trio.run, so it gets to see a test that is not async.
        hypothesis.inner_test = as_virtual_run(hypothesis.inner_test)


def as_virtual_run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A plain function that runs `test` on a new virtual clock at each call."""

    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        run_on_virtual_time(functools.partial(test, *args, **kwargs))

    return run


def run_on_virtual_time(
    main: Callable[[], Awaitable[_T]],
    *,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> _T:
    """`trio.run` with a clock that starts at 0 and jumps, unless the test brought a clock."""
    if clock is None:
        clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(main, clock=clock, instruments=instruments)
