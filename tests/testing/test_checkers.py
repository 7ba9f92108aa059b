"""The ready-made checks: each notices its fault, and nothing on a product without one.

Mutants show that a fault of the product is found by exploring; pasts made by hand show the rest of
what a check refuses, and what it must allow.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from pidurable_actors._json import JsonObject
from pidurable_actors.agent import Replay
from pidurable_actors.harness import Inspection, TaskView
from pidurable_actors.records import (
    ROOT_ID,
    Change,
    CompletedOutcome,
    Completing,
    ConversationId,
    ConversationRecord,
    DropMemos,
    Owner,
    Sleeping,
    TaskId,
    Terminal,
    Waiting,
)
from pidurable_actors.runtime import Report
from pidurable_actors.session import Publication
from pidurable_actors.testing import CrashFailure, Disk, MemoryDisk, SqliteDisk, World, explore
from pidurable_actors.testing._trace import Acknowledged, Began, Effect, Published, ToolEntered
from pidurable_actors.testing.checkers import (
    INVARIANTS,
    acknowledged_kept,
    calls_have_one_result,
    effects_once,
    ids_unique,
    invariants,
    memos_single,
    nothing_stuck,
    owned_work_ends_first,
    prefix_durable,
    restarts_counted,
    stored_before_acknowledged,
    stored_before_published,
    stored_is_acknowledged,
    submissions_settled_once,
    transitions_legal,
    unsafe_runs_once,
    views_survive,
)
from pidurable_actors.testing.conformance._scribe import memo, put
from tests.testing.mutant_stories import HEALTHY, Story, counter
from tests.testing.mutants import MUTANTS, Mutant, mutated
from tests.testing.pasts import (
    GO,
    PENDING,
    RUNNING,
    Past,
    answer,
    inbox,
    live,
    result,
    submission,
    task,
)

EACH_MUTANT = pytest.mark.parametrize("mutant", MUTANTS, ids=[m.fault for m in MUTANTS])
DONE = Terminal(outcome=CompletedOutcome())
HELD = Completing(outcome=CompletedOutcome())
ASLEEP = Sleeping(checkpoint=GO, until_ms=1)


# --- on the product ---


@pytest.mark.parametrize("disk", [MemoryDisk, pytest.param(SqliteDisk, marks=pytest.mark.slow)])
@pytest.mark.parametrize("story", HEALTHY, ids=[story.__name__ for story in HEALTHY])
def test_a_product_without_a_fault_passes_every_check(
    story: Story, disk: Callable[[], Disk]
) -> None:
    assert explore(story, disk=disk).recoveries >= 4


def test_every_check_is_claimed_by_a_mutant() -> None:
    assert {mutant.claims for mutant in MUTANTS} == set(INVARIANTS)


@EACH_MUTANT
def test_a_mutant_is_noticed_by_the_check_that_claims_it_alone(mutant: Mutant) -> None:
    with mutant.installed(), pytest.raises(CrashFailure) as caught:
        explore(mutant.story, check=mutant.claims, disk=mutant.disk)
    _assert_told_by(mutant.claims, caught.value)


@EACH_MUTANT
def test_a_mutant_is_noticed_by_the_invariants(mutant: Mutant) -> None:
    with mutant.installed(), pytest.raises(CrashFailure) as caught:
        explore(mutant.story, disk=mutant.disk)
    assert str(caught.value.error).split(":")[0] in {mutant.claims.__name__, *mutant.also}


@EACH_MUTANT
def test_a_mutant_is_noticed_by_no_check_whose_promise_it_keeps(mutant: Mutant) -> None:
    noticed: set[str] = set()

    def run_all(world: World) -> None:
        for check in INVARIANTS:
            try:
                check(world)
            except AssertionError as error:
                _assert_told_by(check, error)
                noticed.add(check.__name__)

    with mutant.installed():
        explore(mutant.story, check=run_all, disk=mutant.disk)
    assert noticed == {mutant.claims.__name__, *mutant.also}


def test_a_mutant_is_gone_when_its_block_ends() -> None:
    (mutant,) = [m for m in MUTANTS if m.fault == "a restart is not counted"]
    with pytest.raises(CrashFailure), mutant.installed():
        explore(counter)
    explore(counter)


def test_a_mutated_attribute_is_restored_after_an_error() -> None:
    class Owner:
        line = 1

    with pytest.raises(KeyError), mutated(Owner, "line", 2):
        assert Owner.line == 2
        raise KeyError
    assert Owner.line == 1


def _assert_told_by(check: Callable[[World], None], error: BaseException) -> None:
    told = error.error if isinstance(error, CrashFailure) else error
    assert type(told) is AssertionError, f"{told!r} is no broken promise"
    assert str(told).startswith(f"{check.__name__}: ")
    assert "\n  promised: " in str(told)


# --- pasts that are refused ---


def an_acknowledgement_twice() -> World:
    past = Past()
    past.note(Acknowledged(past.commit().number))
    return past.end()


def a_commit_shown_out_of_turn() -> World:
    past = Past()
    first, second = past.stored(), past.stored()
    past.note(Published(second), Published(first))
    return past.end()


def a_commit_that_was_never_shown() -> World:
    past = Past()
    past.commit()
    past.note(Acknowledged(past.stored().number))
    return past.end()


def a_commit_that_is_lost_at_the_end() -> World:
    past = Past()
    past.commit()
    past.kept.clear()
    return past.end()


def a_gap_in_the_numbers() -> World:
    past = Past()
    past.kept.append(past.batch())
    past.commit()
    return past.end()


def a_commit_that_nobody_wrote() -> World:
    past = Past()
    past.kept.append(past.batch())
    past.crash()
    return past.end()


def a_record_that_nobody_wrote() -> World:
    past = Past()
    past.commit(task(2))
    world = past.end()
    world.records = attrs.evolve(world.records, tasks={})
    return world


def a_recovery_that_found_half() -> World:
    past = Past()
    past.commit(task(2))
    past.crash()
    past.commit(task(2, PENDING, restarts=1))
    world = past.end()
    world.recovered = attrs.evolve(world.records, commit=1, tasks={})
    return world


def a_recovery_that_found_another_commit() -> World:
    past = Past()
    past.commit()
    past.crash()
    world = past.end()
    world.recovered = attrs.evolve(world.records, commit=2)
    return world


def a_commit_that_was_shown_and_replaced() -> World:
    past = Past()
    past.note(Published(past.batch(task(2))))
    past.commit(task(3))
    return past.end()


def a_commit_that_was_shown_and_lost() -> World:
    past = Past()
    past.commit()
    past.crash(lost=1)
    return past.end()


def a_caller_that_was_told_otherwise() -> World:
    past = Past()
    past.commit()
    past.world.published(Publication(past.stored(), {}))
    past.open()  # the same process opens it again, so its first harness has closed
    return past.so_far()


def an_id_that_is_not_from_the_counter() -> World:
    past = Past()
    past.commit(task(7), next_id=7)
    return past.end()


def an_id_of_two_entries() -> World:
    past = Past()
    past.commit(result(2, "c1"))
    past.commit(result(2, "c2"))
    return past.end()


def an_id_of_two_submissions_over_a_crash() -> World:
    past = Past()
    past.commit(submission(2, "queued", request_id="one"))
    past.crash()
    past.commit(submission(2, "queued", request_id="two"))
    return past.end()


def an_id_of_two_conversations() -> World:
    past = Past()
    past.commit(put(ConversationRecord(id=ConversationId(2))))
    other = Owner(conversation_id=ROOT_ID, task_id=TaskId(9))
    past.commit(put(ConversationRecord(id=ConversationId(2), owner=other)))
    return past.end()


def a_counter_that_goes_back() -> World:
    past = Past()
    past.commit(next_id=5)
    past.commit(next_id=4)
    return past.end()


def a_task_that_begins_asleep() -> World:
    past = Past()
    past.commit(task(2, ASLEEP))
    return past.end()


def a_restart_without_a_cut() -> World:
    past = Past()
    past.commit(task(2))
    past.commit(task(2, restarts=1))
    return past.end()


def a_cut_that_is_counted_late() -> World:
    past = Past()
    past.commit(task(2))
    past.crash()
    past.commit()
    past.commit(task(2, PENDING, restarts=1))
    return past.end()


def a_cut_that_is_counted_twice() -> World:
    past = Past()
    past.commit(task(2))
    past.crash()
    past.commit(task(2, PENDING, restarts=2))
    return past.end()


def a_memo_with_two_values() -> World:
    past = Past()
    past.commit(task(2), memo(TaskId(2), "m", 1))
    past.crash()
    past.commit(memo(TaskId(2), "m", 2))
    return past.end()


def a_memo_dropped_while_its_task_lives() -> World:
    past = Past()
    past.commit(memo(TaskId(2), "m", 1), task(2, memos={"m": 1}))
    past.commit(DropMemos(TaskId(2)), task(2))
    return past.end()


def a_memo_that_has_another_value_at_the_end() -> World:
    past = Past()
    past.commit(memo(TaskId(2), "m", 1), task(2, memos={"m": 1}))
    world = past.end()
    (stored,) = world.records.tasks.values()
    changed = attrs.evolve(stored, memos={"m": 2})
    world.records = attrs.evolve(world.records, tasks={stored.id: changed})
    return world


def work_below_an_owner_that_had_ended() -> World:
    past = Past()
    past.commit(task(2))
    past.commit(task(2, DONE))
    past.commit(task(3, owner=2))
    return past.end()


def work_in_a_conversation_whose_owner_ended() -> World:
    past = Past()
    owner = Owner(conversation_id=ROOT_ID, task_id=TaskId(2))
    past.commit(task(2), put(ConversationRecord(id=ConversationId(3), owner=owner)))
    past.commit(task(4, conversation_id=3))
    past.commit(task(2, DONE))
    return past.end()


def a_wait_for_what_has_ended() -> World:
    past = Past()
    past.commit(task(2, DONE), task(3, Waiting(checkpoint=GO, on=(TaskId(2),))))
    return past.end()


def a_held_outcome_over_nothing() -> World:
    past = Past()
    past.commit(task(2, HELD))
    return past.end()


def a_task_that_runs_after_the_close() -> World:
    past = Past()
    past.commit(task(2))
    return past.end()


def a_wait_that_was_stuck_when_the_story_ended() -> World:
    world = Past().end()
    world.inspection = _inspected(status="waiting", why="waiting", waiting_on=(TaskId(9),))
    return world


def a_task_that_was_not_scheduled() -> World:
    world = Past().end()
    world.inspection = _inspected(status="pending", why="not_scheduling")
    return world


def a_submission_that_went_back() -> World:
    past = Past()
    past.commit(submission(2, "placed"))
    past.commit(submission(2, "queued"))
    return past.end()


def a_submission_settled_with_another_answer() -> World:
    past = Past()
    past.commit(submission(2, "done", answer=8))
    past.crash()
    past.commit(submission(2, "done", answer=9))
    return past.end()


def an_input_done_without_an_answer() -> World:
    past = Past()
    past.commit(submission(2, "done", answer=None))
    return past.end()


def an_input_unanswered_without_a_reason() -> World:
    past = Past()
    past.commit(submission(2, "unanswered", reason=None))
    return past.end()


def a_queued_input_without_its_content() -> World:
    past = Past()
    past.commit(submission(2, "queued", draft=None), inbox(2))
    return past.end()


def a_placed_input_without_an_entry() -> World:
    past = Past()
    past.commit(submission(2, "placed", entry=None))
    return past.end()


def two_submissions_with_one_entry() -> World:
    past = Past()
    past.commit(submission(2, "done", entry=9), submission(5, "done", entry=9))
    return past.end()


def a_queued_input_that_is_not_in_the_inbox() -> World:
    past = Past()
    past.commit(submission(2, "queued"), live(failed=True))
    return past.end()


def a_settled_input_that_is_in_the_inbox() -> World:
    past = Past()
    past.commit(submission(2, "done"), inbox(2))
    return past.end()


def a_placed_input_that_no_run_answers() -> World:
    past = Past()
    past.commit(submission(2, "placed"))
    return past.end()


def a_write_that_waits_for_nothing() -> World:
    past = Past()
    past.commit(submission(2, "queued", type="write"), inbox(2), live(failed=True))
    return past.end()


def a_run_that_no_live_task_answers() -> World:
    past = Past()
    past.commit(submission(2, "placed"), task(5, DONE), live(2, task_id=5))
    return past.end()


def a_result_of_a_call_that_nobody_made() -> World:
    past = Past()
    past.commit(answer(2, "c1", stop_reason="aborted"), result(3, "c1"))
    return past.end()


def a_call_whose_task_has_ended_without_a_result() -> World:
    past = Past()
    past.commit(
        answer(2, "c1"),
        task(3, DONE, kind="pi.tool", task_input={"entry": 2, "call_id": "c1"}),
    )
    return past.end()


def a_call_of_a_later_answer_with_the_same_id() -> World:
    past = Past()
    past.commit(answer(2, "c1"), result(3, "c1"), answer(4, "c1"))
    return past.end()


def an_intent_that_was_lost() -> World:
    past = Past()
    past.stored(_intent(2))
    past.crash(lost=1)
    past.note(_entered("k"))
    return past.end()


def an_effect_twice_in_one_life() -> World:
    past = Past()
    past.note(Effect("pay"), Effect("pay"))
    return past.end()


def an_effect_with_two_keys() -> World:
    past = Past()
    past.note(Effect("pay", "k1"))
    past.crash()
    past.note(Effect("pay", "k2", life=2))
    return past.end()


REFUSED = [
    (stored_before_acknowledged, an_acknowledgement_twice, "commit 1 was acknowledged before"),
    (stored_before_published, a_commit_shown_out_of_turn, "commit 2 where 1 was due"),
    (stored_before_published, a_commit_that_was_never_shown, "without having shown the last 1"),
    (acknowledged_kept, a_commit_that_is_lost_at_the_end, "at the end only commit 0"),
    (acknowledged_kept, a_commit_that_was_shown_and_lost, "life 2 found only commit 0"),
    (prefix_durable, a_gap_in_the_numbers, "stored commit 2 where 1 was due"),
    (prefix_durable, a_commit_that_nobody_wrote, "commit 1 is stored, and no process"),
    (prefix_durable, a_record_that_nobody_wrote, "at the end, at commit 1, tasks[2]"),
    (prefix_durable, a_recovery_that_found_half, "when the last life began, at commit 1, tasks[2]"),
    (prefix_durable, a_recovery_that_found_another_commit, "at commit 2; the commits that were"),
    (views_survive, a_commit_that_was_shown_and_replaced, "showed commit 1 as something else"),
    (views_survive, a_commit_that_was_shown_and_lost, "showed commit 1, which is not stored"),
    (stored_is_acknowledged, a_caller_that_was_told_otherwise, "stored commit 2, and its caller"),
    (ids_unique, an_id_that_is_not_from_the_counter, "gave id 7 to a task; ids from 2 to 6"),
    (ids_unique, an_id_of_two_entries, "gave id 2 to the entry"),
    (ids_unique, an_id_of_two_submissions_over_a_crash, "gave id 2 to the submission"),
    (ids_unique, an_id_of_two_conversations, "gave id 2 to the conversation"),
    (ids_unique, a_counter_that_goes_back, "from 5 to 4"),
    (transitions_legal, a_task_that_begins_asleep, "from nothing to sleeping"),
    (restarts_counted, a_restart_without_a_cut, "from 0 to 1, and it had not been cut off"),
    (restarts_counted, a_cut_that_is_counted_late, "its first, has it left as it was"),
    (restarts_counted, a_cut_that_is_counted_twice, "has it pending, 2; due was pending, 1"),
    (memos_single, a_memo_with_two_values, "as 2; it was recorded before, as 1"),
    (memos_single, a_memo_dropped_while_its_task_lives, "dropped the memos of task 2"),
    (memos_single, a_memo_that_has_another_value_at_the_end, "recorded were {'m': 1}"),
    (owned_work_ends_first, work_below_an_owner_that_had_ended, "task 3 (test.task) live below"),
    (owned_work_ends_first, work_in_a_conversation_whose_owner_ended, "ended task 2 (test.task)"),
    (nothing_stuck, a_wait_for_what_has_ended, "waits for [2], none of which is live"),
    (nothing_stuck, a_held_outcome_over_nothing, "nothing below it is live"),
    (nothing_stuck, a_task_that_runs_after_the_close, "is running, and the harness has closed"),
    (nothing_stuck, a_wait_that_was_stuck_when_the_story_ended, "waited for [9]"),
    (nothing_stuck, a_task_that_was_not_scheduled, "was not scheduled"),
    (submissions_settled_once, a_submission_that_went_back, "went back from placed"),
    (submissions_settled_once, a_submission_settled_with_another_answer, "was settled again"),
    (submissions_settled_once, an_input_done_without_an_answer, "is done with answer None"),
    (submissions_settled_once, an_input_unanswered_without_a_reason, "unanswered with reason None"),
    (submissions_settled_once, a_queued_input_without_its_content, "queued with draft None"),
    (submissions_settled_once, a_placed_input_without_an_entry, "is placed without an entry"),
    (submissions_settled_once, two_submissions_with_one_entry, "has entry 9, as 2 has"),
    (submissions_settled_once, a_queued_input_that_is_not_in_the_inbox, "the inbox has []"),
    (submissions_settled_once, a_settled_input_that_is_in_the_inbox, "done; the inbox has [2]"),
    (submissions_settled_once, a_placed_input_that_no_run_answers, "the run answers []"),
    (submissions_settled_once, a_write_that_waits_for_nothing, "is a write that waits"),
    (submissions_settled_once, a_run_that_no_live_task_answers, "no live task answers"),
    (calls_have_one_result, a_result_of_a_call_that_nobody_made, "which nobody made"),
    (calls_have_one_result, a_call_whose_task_has_ended_without_a_result, "call 'c1' of entry 2"),
    (calls_have_one_result, a_call_of_a_later_answer_with_the_same_id, "call 'c1' of entry 4"),
    (unsafe_runs_once, an_intent_that_was_lost, "ran before its intent was stored"),
    (effects_once, an_effect_twice_in_one_life, "was done twice in life 1, without a key."),
    (effects_once, an_effect_with_two_keys, "with keys 'k1' and 'k2'; between the two"),
]


@pytest.mark.parametrize(
    ("check", "past", "told"), REFUSED, ids=[past.__name__ for _, past, _ in REFUSED]
)
def test_a_check_refuses(
    check: Callable[[World], None], past: Callable[[], World], told: str
) -> None:
    with pytest.raises(AssertionError) as caught:
        check(past())
    _assert_told_by(check, caught.value)
    assert told in str(caught.value)


# --- pasts that are allowed ---


def a_write_under_way_that_is_there() -> World:
    past = Past()
    past.commit(task(2, PENDING))
    under_way = past.batch(task(3, PENDING))
    past.note(Began((under_way,)))
    past.kept.append(under_way)
    past.crash("within commit 2")
    past.commit(task(3, RUNNING))
    past.crash()
    past.commit(task(3, PENDING, restarts=1))
    return past.end()


def a_group_under_way_that_is_there_in_part() -> World:
    past = Past()
    first, second = past.batch(task(2, PENDING)), past.batch(ahead=1)
    past.note(Began((first, second)))
    past.kept.append(first)
    past.crash("within commits 1 to 2")
    return past.end()


def ids_of_a_lost_commit_that_come_again() -> World:
    past = Past()
    past.commit()
    past.note(Began((past.batch(task(2, PENDING)),)))
    past.crash()
    past.commit(answer(2))
    return past.end()


def a_root_conversation_that_is_made_late() -> World:
    past = Past()
    past.commit(task(2, PENDING))
    past.commit(put(ConversationRecord(id=ROOT_ID)))
    return past.end()


def a_story_that_opened_its_harness_itself() -> World:
    past = Past()
    past.stored(task(2, PENDING))
    return past.end()


def a_harness_that_failed() -> World:
    past = Past()
    past.commit(task(2))
    world = past.end()
    world.reports.append(Report(kind="storage_failed"))
    return world


def work_in_the_background_of_an_ended_owner() -> World:
    past = Past()
    owner = Owner(conversation_id=ROOT_ID, task_id=TaskId(2))
    past.commit(task(2), put(ConversationRecord(id=ConversationId(3), owner=owner)))
    past.commit(task(4, PENDING, conversation_id=3, background=True))
    past.commit(task(2, DONE))
    return past.end()


def a_held_outcome_over_a_conversation_that_works() -> World:
    past = Past()
    owner = Owner(conversation_id=ROOT_ID, task_id=TaskId(2))
    past.commit(task(2), put(ConversationRecord(id=ConversationId(3), owner=owner)))
    past.commit(task(4, PENDING, conversation_id=3), task(2, HELD))
    return past.end()


def an_input_that_waits_after_a_failed_run() -> World:
    past = Past()
    past.commit(submission(2, "queued"), inbox(2), live(failed=True))
    return past.end()


def an_input_that_a_run_answers() -> World:
    past = Past()
    past.commit(
        submission(2, "placed"),
        submission(4, "queued"),
        inbox(4),
        live(2, task_id=5),
        task(5, PENDING),
    )
    return past.end()


def calls_that_live_tasks_see_to() -> World:
    past = Past()
    at_tools = attrs.evolve(PENDING, checkpoint={"phase": "tools", "entry": 2, "started": 1})
    past.commit(
        answer(2, "c1", "c2"),
        task(3, PENDING, kind="pi.tool", task_input={"entry": 2, "call_id": "c1"}),
        task(4, at_tools, kind="pi.generation"),
        answer(5, "c9", stop_reason="aborted"),
    )
    return past.end()


def a_call_id_that_two_answers_use() -> World:
    past = Past()
    past.commit(answer(2, "c1"), result(3, "c1"), answer(4, "c1"), result(5, "c1"))
    return past.end()


def a_safe_tool_that_runs_twice_with_its_key() -> World:
    past = Past()
    intent = past.batch(_intent(2, replay="safe"))
    past.note(Began((intent,)))
    past.kept.append(intent)
    past.crash("within commit 1")
    past.note(_entered("k", replay="safe"))
    past.crash("in the tool")
    past.note(_entered("k", replay="safe"))
    return past.end()


def effects_that_count_once() -> World:
    past = Past()
    past.note(Effect("look", repeatable=True), Effect("pay", "k"), Effect("mail", "m"))
    past.crash()
    past.note(Effect("look", repeatable=True, life=2), Effect("pay", "k", life=2))
    return past.end()


def effects_of_a_story_without_a_harness() -> World:
    world = World(MemoryDisk(), seed=0, origin=None, life=1)
    world.effect("pay")
    return world


ALLOWED = [
    (invariants, a_write_under_way_that_is_there),
    (invariants, a_group_under_way_that_is_there_in_part),
    (invariants, ids_of_a_lost_commit_that_come_again),
    (invariants, a_root_conversation_that_is_made_late),
    (invariants, a_story_that_opened_its_harness_itself),
    (invariants, a_harness_that_failed),
    (invariants, work_in_the_background_of_an_ended_owner),
    (invariants, a_held_outcome_over_a_conversation_that_works),
    (submissions_settled_once, an_input_that_waits_after_a_failed_run),
    (submissions_settled_once, an_input_that_a_run_answers),
    (calls_have_one_result, calls_that_live_tasks_see_to),
    (calls_have_one_result, a_call_id_that_two_answers_use),
    (unsafe_runs_once, a_safe_tool_that_runs_twice_with_its_key),
    (invariants, effects_that_count_once),
    (invariants, effects_of_a_story_without_a_harness),
]


@pytest.mark.parametrize(("check", "past"), ALLOWED, ids=[past.__name__ for _, past in ALLOWED])
def test_a_check_allows(check: Callable[[World], None], past: Callable[[], World]) -> None:
    check(past())


# --- what an author reads ---


def test_a_doubled_effect_is_told_with_its_lives_its_crash_and_what_to_do() -> None:
    past = Past()
    past.note(Effect("charge"))
    past.crash("after effect 'charge'")
    past.note(Effect("charge", life=2))
    with pytest.raises(AssertionError) as caught:
        effects_once(past.end())
    told = str(caught.value)
    assert (
        "effect 'charge' was done in life 1 and again in life 2, without a key; "
        "between the two it was killed after effect 'charge'."
    ) in told
    for way_out in ("key=api.idempotency_key", 'replay="unsafe"', "repeatable=True"):
        assert way_out in told


def test_the_first_of_several_broken_promises_is_the_one_nearest_to_the_storage() -> None:
    past = Past()
    past.commit(task(2, ASLEEP))
    past.kept.clear()
    with pytest.raises(AssertionError, match=r"^acknowledged_kept: "):
        invariants(past.end())


def _inspected(**fields: object) -> Inspection:
    known = {"id": TaskId(2), "conversation_id": ROOT_ID, "kind": "test.task", "owner": None}
    view = TaskView(**{**known, "background": False, "abort_requested": False, **fields})  # type: ignore[arg-type]
    return Inspection(scheduling=True, closing=False, tasks=(view,))


def _intent(task_id: int, *, replay: Replay = "unsafe") -> Change:
    checkpoint: JsonObject = {"phase": "execute", "arguments": {}, "replay": replay, "key": "k"}
    return task(task_id, attrs.evolve(RUNNING, checkpoint=checkpoint), kind="pi.tool")


def _entered(key: str, *, replay: Replay = "unsafe") -> ToolEntered:
    return ToolEntered(TaskId(2), "c1", "ticket", replay, key)
