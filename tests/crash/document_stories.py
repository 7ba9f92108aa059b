"""Stories of documents and forks: a long text that grows while others branch off and go on.

Every change of a document is made in the commit that moves its task on, so that after any crash
each change is there once. The checks compare what is stored with the sum of these changes, and the
story itself looks, in every life, at what the document was as of every entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from pidurable_actors import (
    Checkpoint,
    Completed,
    Conversation,
    Extension,
    Next,
    Registry,
    SleepUntil,
    TaskActor,
    Text,
    Tx,
    define_doc,
    phase,
)
from pidurable_actors._frozen import FrozenDict
from pidurable_actors.records import ROOT_ID, ConversationId, EntryId, Terminal
from pidurable_actors.testing import World
from tests._tasks import NOTE, Note
from tests.crash.stories import Told

__all__ = ["DOCUMENTS"]

PARTS: Final = 8
"""So many that the deltas of the text come to more than its base, which is then made anew."""


@attrs.define
class Manuscript:
    """A text that grows."""

    text: Text = attrs.Factory(Text)
    parts: int = 0


@attrs.define
class Branches:
    """The forks that were made: conversation, entry, and how many parts there were then."""

    made: list[list[int]] = attrs.Factory(list)
    tasks: list[int] = attrs.Factory(list)


KEPT: Final = define_doc("app.kept", Manuscript, history="rewindable", fork="as_of")
CURRENT: Final = define_doc("app.current", Manuscript, fork="current")
FRESH: Final = define_doc("app.fresh", Manuscript)
DRAFT: Final = define_doc("app.draft", Manuscript, scope="task")
BRANCHES: Final = define_doc("app.branches", Branches, scope="session")
ALL_DOCUMENTS: Final = (KEPT, CURRENT, FRESH)


@attrs.frozen
class Nothing:
    """The input of tasks that need none."""


@attrs.frozen
class Step(Checkpoint, phase="step"):
    """The next step, from 1."""

    n: int = 1


def part(n: int) -> str:
    """The n-th part of the text."""
    return f"part {n} " + str(n) * 1_200


def text_of_parts(count: int) -> str:
    """The first parts."""
    return "".join(part(n) for n in range(1, count + 1))


class Writer(TaskActor[Nothing, str], kind="example.writer"):
    """Appends a part with each step, to every document, and an entry that names the part."""

    def start(self) -> Step:
        """Begin."""
        return Step()

    @phase(Step)
    async def step(self, at: Step) -> Next[str]:
        """Write, and go on, in one commit."""
        task_id, now_ms = self.task_id, self.now_ms()

        async def write(tx: Tx) -> Next[str]:
            for definition in ALL_DOCUMENTS:
                book = await tx.doc(definition)
                book.text.append(part(at.n))
                book.parts += 1
            (await tx.doc(DRAFT, task_id)).parts += 1
            tx.append_entry(ROOT_ID, NOTE.new(Note(str(at.n))))
            if at.n == PARTS:
                return Completed("written")
            return SleepUntil(now_ms + 100, Step(at.n + 1))

        return await self.commit(write)


class Brancher(TaskActor[Nothing, str], kind="example.brancher"):
    """Forks at the newest entry, at the first, and a fork of its own; each goes its own way."""

    def start(self) -> Step:
        """Begin."""
        return Step()

    @phase(Step)
    async def step(self, at: Step) -> Next[str]:
        """Fork, and go on, in one commit."""
        now_ms = self.now_ms()

        async def branch(tx: Tx) -> Next[str]:
            branches = await tx.doc(BRANCHES)
            mine = await tx.entries(ROOT_ID, kind="app.note")
            if not mine:
                return SleepUntil(now_ms + 60, at)
            parent = ROOT_ID if at.n < 3 else ConversationId(branches.made[-1][0])
            cut = await tx.entries(parent, kind="app.note", limit=1) if at.n != 2 else mine[-1:]
            made = await tx.fork(parent, at=cut[0].id)
            branches.made.append([made.id, cut[0].id, (await tx.doc(CURRENT, parent)).parts])
            for definition in ALL_DOCUMENTS:
                (await tx.doc(definition, made.id)).text.append(f"branch {at.n}")
            if at.n == 4:
                return Completed("branched")
            return SleepUntil(now_ms + 150, Step(at.n + 1))

        return await self.commit(branch)


async def branching(world: World) -> None:
    """One task writes a long text while another branches off."""

    async def once(tx: Tx) -> list[int]:
        branches = await tx.doc(BRANCHES)
        if not branches.tasks:
            branches.tasks.extend(tx.create_task(kind, Nothing()) for kind in (Writer, Brancher))
        return list(branches.tasks)

    registry = Registry([Extension("branching", tasks=[Writer, Brancher])])
    async with world.open_harness(registry=registry) as harness:
        root = await harness.root()
        await check_as_of(root)
        for task_id in await root.commit(once):
            await harness.wait_for_task(task_id)
        await check_as_of(root)


async def check_as_of(root: Conversation) -> None:
    """As of each entry the text has the parts up to it, whatever was written since."""
    for entry in (await root.entries("app.note")).items:
        noted = NOTE.match(entry)
        assert noted is not None
        then = await root.snapshot_as_of(KEPT, entry.id)
        assert str(then.text) == text_of_parts(int(noted.text))


def check_branching(world: World) -> None:
    """Each change is there once; each fork has what its policies say, and its own change."""
    records = world.records
    values = {key[1:3]: value for key, value in records.documents.items()}
    for definition in ALL_DOCUMENTS:
        assert told(values[ROOT_ID, definition.kind]) == (text_of_parts(PARTS), PARTS)
    writer, brancher = records.tasks.values()
    assert isinstance(writer.state, Terminal)
    assert isinstance(brancher.state, Terminal)
    assert records.retired == {("task", writer.id, DRAFT.kind, ""): writer.ended_at_ms}
    branches = values[0, BRANCHES.kind]
    assert isinstance(branches, FrozenDict)
    made: list[tuple[int, int, int]] = [tuple(it) for it in branches["made"]]  # type: ignore[union-attr, arg-type]
    assert len(made) == 4
    assert [conversation_id for conversation_id, _, _ in made] == [*records.conversations][1:]
    before: dict[int, str] = {}
    for n, (conversation_id, entry_id, parts) in enumerate(made, start=1):
        noted = NOTE.match(records.entries[EntryId(entry_id)])
        assert noted is not None
        then, own = int(noted.text), f"branch {n}"
        inherited = before.get(n - 1, "") if n >= 3 else ""
        before[n] = inherited + own
        kept, current, fresh = (told(values[conversation_id, it.kind]) for it in ALL_DOCUMENTS)
        assert kept == (text_of_parts(then) + own, then)
        assert current == (text_of_parts(parts) + before[n], parts)
        assert fresh == (own, 0)


def told(value: object) -> tuple[str, int]:
    """A stored manuscript: its text, and how many parts it counts."""
    assert isinstance(value, FrozenDict)
    parts = value["parts"]
    assert isinstance(parts, int)
    return str(value["text"]), parts


DOCUMENTS: Final[Mapping[str, Told]] = {"branching off a text": Told(branching, check_branching)}
