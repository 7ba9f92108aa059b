"""Task classes are checked when they are made: each mistake is an error that names the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs
from pytest import mark, raises

from pidurable_actors import Checkpoint, Completed, Continue, Next, TaskActor, phase
from pidurable_actors.errors import DefinitionError, InvalidValue, MisuseError
from pidurable_actors.runtime import checkpoint_of
from tests._tasks import At, CountTo, One, Ticker

T = TypeVar("T")


class NotAttrs(Checkpoint, phase="not-attrs"):
    pass


@attrs.frozen
class Unnamed(Checkpoint):
    pass


@attrs.frozen
class Inherits(At):
    more: int = 0


@attrs.frozen
class HasPhase(Checkpoint, phase="has-phase"):
    phase: str = ""


@attrs.frozen
class Same(Checkpoint, phase="at"):
    pass


def no_kind() -> None:
    class Wrong(TaskActor[CountTo, str]):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def long_kind() -> None:
    class Wrong(TaskActor[CountTo, str], kind="k" * 201):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def version_zero() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x", version=0):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def no_start() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def async_start() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        async def start(self) -> At:  # type: ignore[override]
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def plain_abort() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")

        def abort(self) -> Any:
            return None


def no_types() -> None:
    class Wrong(TaskActor, kind="x"):  # type: ignore[type-arg]
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def open_types() -> None:
    class Wrong(TaskActor[T, str], Generic[T], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")


def no_phase() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()


def two_phases_of_one_name() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[str]:
            return Completed("")

        @phase(Same)
        async def same(self, at: Same) -> Next[str]:
            return Completed("")


def plain_phase() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)  # type: ignore[arg-type]
        def at(self, at: At) -> Next[str]:
            return Completed("")


def phase_without_its_checkpoint() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)  # type: ignore[arg-type]
        async def at(self) -> Next[str]:
            return Completed("")


def with_checkpoint(checkpoint: Any) -> Callable[[], None]:
    def make() -> None:
        class Wrong(TaskActor[CountTo, str], kind="x"):
            def start(self) -> Any:
                return None

            @phase(checkpoint)
            async def at(self, at: Any) -> Next[str]:
                return Completed("")

    return make


def another_result() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[int]:
            return Completed(1)


def another_result_alone() -> None:
    class Wrong(TaskActor[CountTo, str], kind="x"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Completed[int]:
            return Completed(1)


@mark.parametrize(
    ("define", "text"),
    [
        (no_kind, "write its stored identity out"),
        (long_kind, "write its stored identity out"),
        (version_zero, "version must be 1 or more"),
        (no_start, "define start"),
        (async_start, "start is a plain method"),
        (plain_abort, "abort is an async method"),
        (no_types, "name its input and result types"),
        (open_types, "name its input and result types"),
        (no_phase, "mark at least one async method"),
        (two_phases_of_one_name, "two phases are called 'at'"),
        (plain_phase, "a phase is an async method"),
        (phase_without_its_checkpoint, "takes its checkpoint and nothing else"),
        (with_checkpoint(CountTo), "takes a Checkpoint class"),
        (with_checkpoint("at"), "takes a Checkpoint class"),
        (with_checkpoint(Unnamed), "stored name"),
        (with_checkpoint(Inherits), "stored name"),
        (with_checkpoint(NotAttrs), "must be an attrs class"),
        (with_checkpoint(HasPhase), "a field called 'phase'"),
        (another_result, "returns a result of type"),
        (another_result_alone, "returns a result of type"),
    ],
)
def test_a_wrong_definition_is_refused_when_the_class_is_made(
    define: Callable[[], None], text: str
) -> None:
    with raises(DefinitionError, match=text) as told:
        define()
    assert str(told.value).startswith("Wrong")


def test_a_definition_is_found_on_its_class() -> None:
    definition = Ticker.definition
    assert (definition.kind, definition.version) == ("test.ticker", 1)
    assert definition.input_type is CountTo
    assert definition.phases == {"at": (At, "at")}
    assert not definition.builtin


def test_a_task_may_extend_another_under_a_kind_of_its_own() -> None:
    class Longer(Ticker, kind="test.longer"):
        @phase(One)
        async def one(self, at: One) -> Next[str]:
            return Continue(At())

    assert set(Longer.definition.phases) == {"at", "one"}
    assert Longer.definition.input_type is CountTo
    assert Ticker.definition.phases.keys() == {"at"}


def test_a_task_of_an_unwritten_result_type_may_return_anything() -> None:
    class Free(TaskActor[CountTo, Any], kind="test.free"):
        def start(self) -> At:
            return At()

        @phase(At)
        async def at(self, at: At) -> Next[int]:
            return Completed(1)

    assert Free.definition.kind == "test.free"


def test_a_phase_may_come_from_a_mixin_that_leaves_the_result_open() -> None:
    class Mixin(Generic[T]):
        @phase(One)
        async def one(self, at: One) -> Next[T]:
            return Continue(At())

    class Mixed(Ticker, Mixin[str], kind="test.mixed"):
        pass

    assert set(Mixed.definition.phases) == {"at", "one"}


def test_a_checkpoint_is_stored_with_its_phase_and_comes_back() -> None:
    stored = Ticker.store_checkpoint(At(3))
    assert stored == {"phase": "at", "n": 3}
    assert checkpoint_of(Ticker, stored) == (At(3), "at")
    with raises(MisuseError, match="not a checkpoint of this task; it has at"):
        Ticker.store_checkpoint(One())
    with raises(MisuseError, match="not a checkpoint of this task"):
        Ticker.store_checkpoint("at")  # type: ignore[arg-type]


@mark.parametrize(
    ("stored", "text"),
    [
        ({"phase": "gone"}, "no phase 'gone'"),
        ({}, "no phase None"),
        ({"phase": 5}, "no phase 5"),
        ({"phase": "at", "n": "many"}, r"checkpoint\[at\]"),
        ({"phase": "at", "n": None}, r"checkpoint\[at\]"),
    ],
)
def test_a_stored_checkpoint_that_does_not_fit_is_refused(stored: Any, text: str) -> None:
    with raises(InvalidValue, match=text):
        checkpoint_of(Ticker, stored)


def test_a_seed_holds_the_stored_input_and_the_first_checkpoint() -> None:
    seed = Ticker.seed(CountTo(3))
    assert (seed.kind, seed.version) == ("test.ticker", 1)
    assert (seed.input, seed.checkpoint) == ({"to": 3}, {"phase": "at", "n": 1})
    with raises(InvalidValue, match=r"input\[test.ticker\].to"):
        Ticker.seed(CountTo(float("nan")))  # type: ignore[arg-type]
    with raises(InvalidValue, match=r"input\[test.ticker\]"):
        Ticker.seed("three")  # type: ignore[arg-type]


@attrs.frozen
class Unreadable(Checkpoint, phase="unreadable"):
    anything: object = None


def test_a_checkpoint_that_could_never_be_read_back_is_refused_at_once() -> None:
    with raises(DefinitionError, match="Unreadable has a field that cannot be read back"):

        class Wrong(TaskActor[CountTo, str], kind="test.wrong"):
            def start(self) -> Unreadable:
                return Unreadable()

            @phase(Unreadable)
            async def at(self, at: Unreadable) -> Next[str]:
                return Completed("")


def test_a_checkpoint_whose_types_cannot_be_resolved_is_taken_on_trust() -> None:
    @attrs.frozen
    class Inner:
        n: int = 0

    @attrs.frozen
    class Local(Checkpoint, phase="local"):
        inner: Inner = Inner()

    class Right(TaskActor[CountTo, str], kind="test.right"):
        def start(self) -> Local:
            return Local()

        @phase(Local)
        async def at(self, at: Local) -> Next[str]:
            return Completed("")

    assert Right.definition.phases["local"][0] is Local
