"""The engine room: the only nurseries of the engine."""

from pidurable_actors.actors._endings import (
    orphan_blocked,
)
from pidurable_actors.actors._engine import (
    ClosedEnd,
    Engine,
)
from pidurable_actors.actors._ownership import (
    check_states,
    settle_ended,
    with_abort,
)
from pidurable_actors.actors._publisher import (
    Publisher,
    WaitKey,
)
from pidurable_actors.actors._reservations import (
    KindLookup,
)
from pidurable_actors.actors._storage_actor import (
    StorageActor,
)
from pidurable_actors.actors._supervisor import (
    Supervisor,
)
from pidurable_actors.actors._transitions import (
    TRANSITIONS,
    check_transition,
)

__all__ = [
    "TRANSITIONS",
    "ClosedEnd",
    "Engine",
    "KindLookup",
    "Publisher",
    "StorageActor",
    "Supervisor",
    "WaitKey",
    "check_states",
    "check_transition",
    "orphan_blocked",
    "settle_ended",
    "with_abort",
]
