"""The storage seam; each backend is a module of its own, imported by name."""

from pidurable_actors.storage._lane import (
    Lane,
)
from pidurable_actors.storage._protocol import (
    Head,
    LiveTask,
    PromptStorage,
    Storage,
)

__all__ = [
    "Head",
    "Lane",
    "LiveTask",
    "PromptStorage",
    "Storage",
]
