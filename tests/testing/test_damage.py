"""Damage and hostile surroundings are real and end with their block; and what a harness makes of them."""

from __future__ import annotations

import errno
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import attrs
import trio
import trio.testing
from pytest import TempPathFactory, fixture, mark, raises

from pidurable_actors import (
    AgentChoice,
    Conversation,
    Models,
    Reply,
    ScriptedModel,
    Tool,
    open_harness,
    tool,
)
from pidurable_actors._clock import SeededChance
from pidurable_actors.errors import SessionFailed, StorageCorrupt, StorageError, StorageUnusable
from pidurable_actors.models import ScriptedContext
from pidurable_actors.records.codec import encode_record
from pidurable_actors.storage.sqlite import Durability, SqliteStorage
from pidurable_actors.testing.damage import (
    FlippedBit,
    Truncation,
    damages,
    file_size_limit,
    flip_bit,
    read_only_directory,
    truncate,
)
from tests._agents import MODEL, call, calling, interrupted, open_agent, registry_of
from tests._tasks import append, notes, opened

# --- damage is done as it says ---


@fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    return path


def test_a_truncation_leaves_the_first_bytes(file: Path) -> None:
    truncate(file, 150)
    assert file.read_bytes() == bytes(range(150))
    Truncation(size_bytes=0).apply(file)
    assert file.read_bytes() == b""
    for size in (-1, 0, 1):
        with raises(ValueError, match="cannot be cut"):
            truncate(file, size)


def test_a_flipped_bit_is_one_bit_and_a_second_time_undoes_it(file: Path) -> None:
    before = file.read_bytes()
    for damage in (FlippedBit(offset=0, bit=0), FlippedBit(offset=199, bit=7)):
        damage.apply(file)
        after = file.read_bytes()
        assert len(after) == len(before)
        changed = {at: a ^ b for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
        assert changed == {damage.offset: 1 << damage.bit}
        flip_bit(file, damage.offset, damage.bit)
        assert file.read_bytes() == before
    for offset, bit in ((200, 0), (-1, 0), (0, 8), (0, -1)):
        with raises(ValueError, match="has no bit"):
            flip_bit(file, offset, bit)


def test_the_same_seed_draws_the_same_damage_over_the_whole_file(file: Path) -> None:
    drawn = list(damages(file, seed="a", truncations=20, flips=50))
    assert drawn == list(damages(file, seed="a", truncations=20, flips=50))
    assert drawn != list(damages(file, seed="b", truncations=20, flips=50))
    cuts = [damage.size_bytes for damage in drawn if isinstance(damage, Truncation)]
    assert [cut // 10 for cut in cuts] == list(range(20))
    bits = [damage.offset * 8 + damage.bit for damage in drawn if isinstance(damage, FlippedBit)]
    assert [bit // 32 for bit in bits] == list(range(50))
    assert file.read_bytes() == bytes(range(200))


def test_there_is_no_more_damage_than_places_for_it(file: Path) -> None:
    truncate(file, 2)
    drawn = list(damages(file, seed="a", truncations=9, flips=99))
    assert drawn[:2] == [Truncation(size_bytes=0), Truncation(size_bytes=1)]
    assert len(set(drawn)) == len(drawn) == 2 + 16


# --- surroundings turn hostile and back ---


def test_past_the_size_limit_a_write_fails_and_after_the_block_it_does_not(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A process that does not ignore the signal must not be ended by it.
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    path = tmp_path / "file"
    try:
        with (
            raises(OSError, match="too large") as told,
            file_size_limit(1_000),
            path.open("wb", buffering=0) as file,
        ):
            assert file.write(b"x" * 1_000) == 1_000
            file.write(b"x")
        assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGXFSZ, handler)
    assert told.value.errno == errno.EFBIG
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    path.write_bytes(b"x" * 1_001)


def test_in_a_read_only_directory_nothing_can_be_changed_even_by_root(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("there")
    file.chmod(0o640)
    modes = (tmp_path.stat().st_mode, file.stat().st_mode)
    attempts: list[Callable[[], object]] = [
        (tmp_path / "new").touch,
        lambda: file.open("r+"),
        file.unlink,
        lambda: file.rename(tmp_path / "other"),
    ]
    refused: list[int | None] = []

    def attempt() -> None:
        for act in attempts:
            with raises(PermissionError) as told:
                act()
            refused.append(told.value.errno)

    with read_only_directory(tmp_path):
        attempt()
        # A thread that is started inside, as that of a storage, is held to it too.
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        assert file.read_text() == "there"
    assert refused == [errno.EACCES] * 8
    assert (tmp_path.stat().st_mode, file.stat().st_mode) == modes
    file.write_text("changed")
    (tmp_path / "new").touch()


def test_a_directory_is_writable_again_after_an_error_in_the_block(tmp_path: Path) -> None:
    with raises(LookupError), read_only_directory(tmp_path):
        raise LookupError
    (tmp_path / "new").touch()


# --- a harness in hostile surroundings ---


def integrity(path: Path) -> str:
    """What SQLite says of the whole file."""
    with closing(sqlite3.connect(path)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    return str(verdict)


def names_in(place: Path) -> set[str]:
    """The files of a directory."""
    return {file.name for file in place.iterdir()}


async def test_a_closed_file_can_be_read_in_a_place_that_may_not_be_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.sqlite"
    async with opened(SqliteStorage(path)) as on:
        await on.root.commit(append("kept"))
    before = path.read_bytes()
    with read_only_directory(tmp_path):
        async with open_harness(SqliteStorage(path), read_only=True) as harness:
            assert await notes(await harness.root()) == ["kept"]
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {path.name, f"{path.name}.lock"}


def rounds(ctx: ScriptedContext) -> Reply:
    """Six rounds of one call each, then answers."""
    if ctx.answers >= 6:
        return Reply("done")
    return calling(call("ticket", f"c{ctx.answers}", n=ctx.answers))


def tickets(sold: list[int]) -> Tool:
    """A tool whose effect is seen from outside and whose output needs room."""

    @tool()
    async def ticket(n: int) -> str:
        """Open a ticket."""
        await trio.lowlevel.checkpoint()
        sold.append(n)
        return "opened " + "." * 3_000

    return ticket


@mark.slow
@mark.parametrize("durability", ["process", "power"])
@mark.parametrize("size", [8_000, 200_000, 300_000, 450_000])
async def test_c44_a_disk_that_fills_ends_the_harness_and_with_room_again_it_goes_on(
    tmp_path: Path, durability: Durability, size: int
) -> None:
    """Fill the disk at the open, at the first commit of the run and in the middle of it.

    Then free it: the file is whole, the run ends, no call was made twice, each has one result.
    """
    path = tmp_path / "agent.sqlite"
    sold: list[int] = []

    async def run() -> None:
        storage = SqliteStorage(path, durability)
        async with open_agent(storage, ScriptedModel(rounds), tickets(sold)) as agent:
            assert (await agent.ask("go", request_id="r")).status == "done"
            results = await agent.results()
            assert list(results) == [f"c{n}" for n in range(6)]
            assert sum(result.is_error for result in results.values()) <= 1
            assert (await agent.lines())[-1] == "assistant done"

    with file_size_limit(size), raises((StorageError, SessionFailed)) as told:
        await run()
    failed = isinstance(told.value, SessionFailed)
    assert failed == (size > 100_000)
    assert "the disk failed" in str(told.value.__cause__ if failed else told.value)
    assert len(sold) < 6
    assert integrity(path) == "ok"
    await run()
    assert integrity(path) == "ok"
    assert set(Counter(sold).values()) == {1}


def log_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_a_disk_that_fills_is_told_to_the_call_that_met_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.sqlite"
    with raises(SessionFailed) as ended:
        async with opened(SqliteStorage(path)) as on:
            await on.root.commit(append("first"))
            # The log may grow by a few pages more, not by the big note.
            with file_size_limit(log_bytes(path) + 20_000):
                with raises(StorageError, match="the disk failed") as met:
                    await on.root.commit(append("big " + "." * 100_000))
                with raises(SessionFailed):
                    await on.root.commit(append("third"))
    assert ended.value.__cause__ is met.value
    assert integrity(path) == "ok"
    async with opened(SqliteStorage(path)) as again:
        assert await notes(again.root) == ["first"]


async def test_a_read_only_place_is_refused_and_goes_on_when_it_is_writable_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.sqlite"
    async with opened(SqliteStorage(path)) as on:
        await on.root.commit(append("first"))
    before = path.read_bytes()
    with read_only_directory(tmp_path):
        for place in (path, tmp_path / "new.sqlite"):
            with raises(StorageUnusable, match="Permission denied"):
                async with opened(SqliteStorage(place)):
                    raise AssertionError
    assert path.read_bytes() == before
    assert not (tmp_path / "new.sqlite").exists()
    async with opened(SqliteStorage(path)) as again:
        assert await notes(again.root) == ["first"]


# --- a lock that another process holds ---

_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read(1)
connection.execute("ROLLBACK")
"""


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """Another process that holds the write lock of a file until the returned function is called."""
    command = [sys.executable, "-c", _LOCKER, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process.stdin.close
        finally:
            process.kill()


def once(ctx: ScriptedContext) -> Reply:
    """Call the ticket tool, then answer."""
    return Reply("done") if ctx.answers else calling(call("ticket", "c1"))


@mark.slow
@mark.real_time
async def test_c43_a_short_lock_of_another_process_is_absorbed_and_no_tool_runs_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.sqlite"
    sold: list[float] = []

    @tool()
    async def ticket() -> str:
        """Open a ticket, and meet a lock when its result is to be stored."""
        await trio.lowlevel.checkpoint()
        release = holding.enter_context(locked(path))
        sold.append(trio.current_time())
        threading.Timer(0.1, release).start()
        return "opened"

    with ExitStack() as holding:
        async with open_agent(SqliteStorage(path), ScriptedModel(once), ticket) as agent:
            await agent.ask("go")
            assert trio.current_time() - sold[0] >= 0.1
            assert (await agent.lines())[-2:] == ["result c1 opened", "assistant done"]
            assert agent.reports == []
    assert len(sold) == 1


@mark.slow
@mark.real_time
async def test_c43_a_lock_that_stays_ends_the_harness_and_no_tool_runs_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.sqlite"
    sold: list[str] = []

    @tool()
    async def ticket() -> str:
        """Open a ticket, and meet a lock when its result is to be stored."""
        await trio.lowlevel.checkpoint()
        holding.enter_context(locked(path))
        sold.append("ticket")
        return "opened"

    with ExitStack() as holding:
        storage = SqliteStorage(path, busy_timeout_s=0.05)
        with raises(SessionFailed) as ended:
            async with open_agent(storage, ScriptedModel(once), ticket) as agent:
                await agent.ask("go", request_id="r")
        cause = ended.value.__cause__
        assert isinstance(cause, StorageError)
        assert "another program holds its lock" in str(cause)
        assert cause.wrote is False
        with raises(StorageError, match="another program holds its lock"):
            async with opened(SqliteStorage(path, busy_timeout_s=0.05)):
                raise AssertionError
    async with open_agent(SqliteStorage(path), ScriptedModel(once), ticket) as agent:
        await agent.ask("go", request_id="r")
        assert (await agent.lines())[-2:] == [f"error c1 {interrupted('ticket')}", "assistant done"]
    assert sold == ["ticket"]


# --- damaged files, read through a harness ---


@attrs.frozen
class Stored:
    """A conversation on disk.

    Attributes:
        closed: a file after a clean close.
        crashed: a file and its log as a killed process leaves them.
        entries: the transcript, encoded, oldest first.
    """

    closed: Path
    crashed: Path
    entries: list[str]


@asynccontextmanager
async def conversation(path: Path) -> AsyncIterator[Conversation]:
    async with open_harness(
        SqliteStorage(path),
        models=Models([ScriptedModel(rounds)]),
        registry=registry_of(tickets([])),
        # The same bytes in every run, so that the same places are damaged.
        chance=SeededChance("damage"),
        inline_storage=True,
    ) as harness:
        yield await harness.root(agent=AgentChoice(model=MODEL))


async def transcript(root: Conversation) -> list[str]:
    return [encode_record(entry) for entry in reversed((await root.entries(limit=1_000)).items)]


@fixture(scope="module")
def stored(tmp_path_factory: TempPathFactory) -> Stored:
    place = tmp_path_factory.mktemp("stored")
    path, crashed = place / "agent.sqlite", place / "crashed" / "agent.sqlite"

    async def make() -> list[str]:
        async with conversation(path) as root:
            await (await root.submit("go", request_id="r")).wait()
            # While another program has it open, the log is not folded in at the close.
            other.execute("SELECT count(*) FROM meta").fetchall()
            return await transcript(root)

    with closing(sqlite3.connect(path)) as other:
        entries = trio.run(make, clock=trio.testing.MockClock(autojump_threshold=0))
        crashed.parent.mkdir()
        for name in ("agent.sqlite", "agent.sqlite-wal"):
            shutil.copy(place / name, crashed.with_name(name))
    # Once more by itself: now it is.
    with closing(SqliteStorage(path)) as storage:
        storage.open(read_only=False)
    assert not Path(f"{path}-wal").exists()
    return Stored(path, crashed, entries)


async def look(
    path: Path, does: Callable[[Conversation], Awaitable[list[str]]] = transcript
) -> list[str] | StorageError:
    """What is read through a harness, or the typed error that it ends with."""
    try:
        async with conversation(path) as root:
            return await does(root)
    except StorageError as error:
        return error
    except SessionFailed as ended:
        assert isinstance(ended.__cause__, StorageError)
        return ended.__cause__


def copied(path: Path, place: Path) -> Path:
    """A copy of a file and its log, alone in a directory."""
    place.mkdir(exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    for name in (path, Path(f"{path}-wal")):
        if name.exists():
            shutil.copy(name, place)
    return place / path.name


async def test_an_undamaged_copy_is_read_as_it_was(stored: Stored, tmp_path: Path) -> None:
    for path in (stored.closed, stored.crashed):
        assert await look(copied(path, tmp_path / "copy")) == stored.entries


@mark.slow
async def test_a_file_cut_anywhere_is_an_error_and_never_a_shorter_conversation(
    stored: Stored, tmp_path: Path
) -> None:
    """All cuts but the one to nothing: an empty file is a new storage."""
    for damage in damages(stored.closed, seed="cut", truncations=100, flips=0):
        copy = copied(stored.closed, tmp_path / "copy")
        damage.apply(copy)
        found = await look(copy)
        assert isinstance(found, StorageCorrupt | StorageUnusable), damage


@mark.slow
@mark.parametrize("kind", [Truncation, FlippedBit])
async def test_a_damaged_log_leaves_the_conversation_up_to_the_damage(
    stored: Stored, tmp_path: Path, kind: type
) -> None:
    """SQLite takes the log up to the first damaged page, as after a cut of the power.

    So what is found is a beginning of the transcript, longer the later the damage is; the run that
    it cuts off goes on from there.
    """
    log = Path(f"{stored.crashed}-wal")
    lengths = []
    copy = stored.crashed
    for damage in damages(log, seed="log", truncations=60, flips=60):
        if isinstance(damage, kind):
            copy = copied(stored.crashed, tmp_path / "copy")
            damage.apply(Path(f"{copy}-wal"))
            found = await look(copy)
            assert isinstance(found, list), damage
            assert found == stored.entries[: len(found)], damage
            lengths.append(len(found))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 5
    async with conversation(copy) as root:
        await (await root.submit("go", request_id="r")).wait()
        assert len(await transcript(root)) == len(stored.entries)


@mark.slow
async def test_out_of_a_file_with_a_flipped_bit_comes_nothing_worse_than_a_typed_error(
    stored: Stored, tmp_path: Path
) -> None:
    """Flip bits all over a file, read the conversation and go on with it.

    SQLite keeps no checksum of its pages, so a bit in the text of an entry makes another text: most
    of this file is text, and what is read is not judged here.
    """

    async def read_and_ask(root: Conversation) -> list[str]:
        found = await transcript(root)
        with trio.fail_after(1_000):
            await (await root.submit("again")).wait()
        return found

    verdicts: Counter[str] = Counter()
    for damage in damages(stored.closed, seed="flip", truncations=0, flips=250):
        copy = copied(stored.closed, tmp_path / "copy")
        damage.apply(copy)
        found = await look(copy, read_and_ask)
        verdicts["typed" if isinstance(found, StorageError) else "read"] += 1
    assert verdicts["typed"] > 10
    assert verdicts["read"] > 10
