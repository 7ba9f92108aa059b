"""Whether the outside shows what a story does as if it had been done once.

Owns effects, as stories tell them with `World.effect`. It cannot see what a story does without
telling. The invariant: it passes exactly when all effects of one name that are not repeatable are
one effect, or have one key by which the outside knows them for one.

Its text is written for the author of an application: it is the answer to "what does a crash do to
my tool", so it says between which crashes the thing was done twice and what can be done about it.
"""

from __future__ import annotations

from typing import Final

from pidurable_actors.testing._trace import Crashed, Effect
from pidurable_actors.testing._world import World
from pidurable_actors.testing.checkers._broken import broken

__all__ = ["effects_once"]

_PROMISE: Final = (
    "over all crashes an effect is seen from outside as if done once; effects with one key count "
    "once"
)
_ADVICE: Final = """\
  A process that dies between doing a thing and storing that it is done does it again. To see it
  done once:
  - give the service a key that it deduplicates by, and tell it here:
    world.effect({name!r}, key=api.idempotency_key); a tool that is run again has the same key;
  - or declare the tool replay="unsafe", so that a call that was cut off is not run again and the
    model is told that it may have happened; or replay="reconcile", and look it up;
  - or, when doing it again does no harm, say so: world.effect({name!r}, repeatable=True).
  Two different things need two names."""


def effects_once(world: World) -> None:
    """An effect that is not repeatable is done once, or each time with one key.

    Raises:
        AssertionError: it was done twice; the text says in which lives, and what can be done.
    """
    done: dict[str, tuple[Effect, int]] = {}
    deaths: list[str] = []
    for event in world.history.events:
        match event:
            case Crashed(where):
                deaths.append(where)
            case Effect(name, key, repeatable=False):
                first, deaths_then = done.setdefault(name, (event, len(deaths)))
                if first is event or (key is not None and key == first.key):
                    continue
                raise broken(
                    "effects_once",
                    _PROMISE,
                    f"{_told(first, event, deaths[deaths_then:])}\n{_ADVICE.format(name=name)}",
                )
            case _:
                pass


def _told(first: Effect, again: Effect, deaths: list[str]) -> str:
    keys = ", without a key"
    if first.key is not None or again.key is not None:
        keys = f", with keys {first.key!r} and {again.key!r}"
    between = f"; between the two it was killed {', then '.join(deaths)}" if deaths else ""
    both = "twice in" if first.life == again.life else f"in life {first.life} and again in"
    return f"effect {again.name!r} was done {both} life {again.life}{keys}{between}."
