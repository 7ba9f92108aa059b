"""Opening a storage: the one place where the parts are wired.

The engine is the only child of the outer nursery, and runs its actors under a shield of its own.
What the body raises is kept and raised again when the nurseries are gone, so it reaches the caller
bare; the host's cancellation ends the body, and the end of the body closes the engine.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from pidurable_actors._clock import Chance, Clock, SystemChance, default_clock
from pidurable_actors.actors import Engine
from pidurable_actors.agent import AgentServices, EnvTarget, Registry, check_agent, new_conversation
from pidurable_actors.errors import MisuseError
from pidurable_actors.harness._builtin import BUILT_IN
from pidurable_actors.harness._core import Core
from pidurable_actors.harness._harness import Harness
from pidurable_actors.models import Models
from pidurable_actors.runtime import ConversationDoor, ProgressBoard, Report, Reporter
from pidurable_actors.session import CommitWitness
from pidurable_actors.settings import Settings
from pidurable_actors.storage import Storage
from pidurable_actors.tasks.compaction import Compaction
from pidurable_actors.tasks.generation import Generation
from pidurable_actors.views import Hub

__all__ = ["open_harness"]


@asynccontextmanager
async def open_harness(
    storage: Storage,
    *,
    models: Models | None = None,
    registry: Registry | None = None,
    settings: Settings | Callable[[], Settings] | None = None,
    env: Callable[[EnvTarget], Awaitable[object]] | None = None,
    clock: Clock | None = None,
    chance: Chance | None = None,
    on_report: Callable[[Report], object] | None = None,
    read_only: bool = False,
    inline_storage: bool = False,
    witness: CommitWitness | None = None,
) -> AsyncIterator[Harness]:
    """Open a storage and run its actors while the block runs.

    What an earlier process left running is given back first; nothing runs until `Harness.resume`
    or a call that asks for progress. Leaving the block closes: running tasks are cancelled and
    given back without counting a restart, what was admitted is stored, waits end.

    Args:
        storage: not yet open, such as ``SqliteStorage("agent.sqlite")``.
        models: the model providers.
        registry: the extensions; may change while the harness runs.
        settings: policy, or a function that returns it and is asked at each decision.
        env: async function that builds the environment of a call, such as a shell or a sandbox, for
            its tool to ask for with ``api.env()``; it may return one that it keeps.
        clock: durable time; by default the wall clock, or Trio's clock under a `MockClock`.
        chance: jitter and keys; by default the operating system's.
        on_report: told of trouble that was dealt with; plain function.
        read_only: look beside a live owner; change and schedule nothing.
        inline_storage: run storage calls on the Trio thread, for tests that must be deterministic.
        witness: told of each commit when it is shown and when its caller goes on, for tests.

    Raises:
        MisuseError: an argument is of another kind than asked for.
        StorageInUse: another owner has the storage; at once.
        StorageError: it cannot be opened; the subclass says why.
        SessionFailed: on leaving the block, once, when the storage failed meanwhile.
        HarnessBug: the runtime failed; ``body_error`` holds what the body raised.
        Exception: what the body raised, bare.

    Durability: after the block everything that was acknowledged is stored.

    Cancellation: ends the body; the close is finished first, then the cancellation goes on.
    """
    _check_arguments(storage, models, registry, env)
    installed = registry or Registry()
    policy = _policy(settings or Settings())
    services = AgentServices(
        registry=installed,
        models=models or Models(),
        settings=policy,
        chance=chance or SystemChance(),
        generation=Generation,
        compaction=Compaction,
        env=env,
    )
    board, hub = ProgressBoard(), Hub()
    provided: dict[type, object] = {AgentServices: services, ProgressBoard: board}
    engine = Engine(
        storage,
        clock=clock or default_clock(),
        kinds=lambda kind: BUILT_IN.get(kind) or installed.task(kind),
        settings=policy,
        report=Reporter(on_report),
        services=provided,
        read_only=read_only,
        inline=inline_storage,
        witness=witness,
    )
    _connect(hub, engine, board)
    harness = Harness(Core(engine, services, hub, board))
    provided[ConversationDoor] = ConversationDoor(
        open=harness.conversation,
        create=lambda tx, owner, agent: new_conversation(tx, services, agent=agent, owner=owner),
        check=lambda agent: check_agent(services, agent),
    )
    await engine.open()
    body_error: BaseException | None = None
    forget = installed.listen(engine.supervisor.kinds_changed)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.run)
            try:
                await engine.repair()
                with engine.body_scope:
                    yield harness
            except BaseException as error:  # noqa: BLE001 - raised again when the actors are gone
                body_error = error
            engine.request_close()
    finally:
        forget()
    outcome = engine.outcome(body_error)
    if outcome is not None:
        raise outcome


def _connect(hub: Hub, engine: Engine, board: ProgressBoard) -> None:
    """Tell the hub of commits, of progress, and of the end."""
    board.listen(hub.progressed)
    engine.publisher.listen(hub.published)
    engine.publisher.at_end(
        lambda: hub.finish("session_failed" if engine.failed else "session_closed")
    )


def _check_arguments(storage: object, models: object, registry: object, env: object) -> None:
    if isinstance(storage, str | os.PathLike):
        raise MisuseError(
            f"open_harness takes a storage, not a path; use SqliteStorage({os.fspath(storage)!r})."
        )
    if models is not None and not isinstance(models, Models):
        raise MisuseError(f"models= takes Models([provider, ...]), not {type(models).__name__}.")
    if registry is not None and not isinstance(registry, Registry):
        raise MisuseError(
            f"registry= takes Registry([extension, ...]), not {type(registry).__name__}."
        )
    called = getattr(env, "__call__", None)  # noqa: B004 - of an object, its method
    if env is not None and not any(map(inspect.iscoroutinefunction, (env, called))):
        raise MisuseError(f"env= takes an async function of an EnvTarget, not {env!r}.")


def _policy(settings: Settings | Callable[[], Settings]) -> Callable[[], Settings]:
    given: object = settings
    if callable(settings) and not inspect.iscoroutinefunction(settings):
        return settings
    if not isinstance(given, Settings):
        raise MisuseError(
            "settings= takes Settings(...) or a plain function that returns them, not "
            f"{type(given).__name__}."
        )
    return lambda: given
