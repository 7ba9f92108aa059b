"""Every example runs in a process of its own, keeps what it promises, and leaves nothing behind.

The promises are those of the acceptance stories: the printed text, with ids replaced because a
later version may number differently.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

QUICKSTART: Final = """\
done: The orders fail because of a bug: 3 matches for NullPointerException, all in OrderService.java:42.
"""

RECOVERY_CLOSED: Final = """\
tick 1
tick 2
between the runs: pending | 2 | {"printed-1":true,"printed-2":true} | (none)
opened again: pending | 2 | {"printed-1":true,"printed-2":true} | (none)
tick 3
tick 4
tick 5
counted to 5
at the end: terminal | (none) | (none) | (none)
"""

RECOVERY_KILLED: Final = """\
tick 1
tick 2
between the runs: running | 2 | {"printed-1":true,"printed-2":true} | (none)
opened again: pending | 2 | {"printed-1":true,"printed-2":true} | 1
tick 3
tick 4
tick 5
counted to 5
at the end: terminal | (none) | (none) | (none)
"""

KILL9: Final = r"""process 1: killed by SIGKILL inside open_ticket
submission: done
search_logs: is_error=False '3 matches: NullPointerException in OrderService.java:42'
open_ticket: is_error=True '<harness>\n[error] Tool open_ticket was interrupted and may have partially run\n</harness>'
ledger:
  search_logs NullPointerException
  open_ticket NPE in orders
"""

TRACKER: Final = """\
default                    1 ticket(s) then, 1 at the end: <harness> [error] Tool open_ticket was interrupted and may have partially run </harness>
safe, no key               1 ticket(s) then, 2 at the end: Opened TICKET-2
safe, with key             1 ticket(s) then, 1 at the end: Opened TICKET-1
reconcile                  1 ticket(s) then, 1 at the end: Opened TICKET-1
reconcile, not yet opened  0 ticket(s) then, 1 at the end: Opened TICKET-1
"""

APPEND_PROBE: Final = r"""after the kill:
  ID | pi.generation | waiting | - | tools | -
  ID | pi.tool | running | - | execute | unsafe
opened again:
  ID | pi.generation | waiting | - | tools | -
  ID | pi.tool | pending | 1 | execute | unsafe
unsafe: the file has 1 line(s), the result is 'working\n<harness>\n[error] Tool append was interrupted and may have partially run\n</harness>'

after the kill:
  ID | pi.generation | waiting | - | tools | -
  ID | pi.tool | running | - | execute | safe
opened again:
  ID | pi.generation | waiting | - | tools | -
  ID | pi.tool | pending | 1 | execute | safe
safe: the file has 2 line(s), the result is 'appended'

"""

CRASH_TEST: Final = """\
without a key: killed before commit 6: AssertionError: effects_once: effect 'charge order 7' was done in life 1 and again in life 2, without a key; between the two it was killed before commit 6.
  A process that dies between doing a thing and storing that it is done does it again. To see it
  done once:
  - give the service a key that it deduplicates by, and tell it here:
    world.effect('charge order 7', key=api.idempotency_key); a tool that is run again has the same key;
  - or declare the tool replay="unsafe", so that a call that was cut off is not run again and the
    model is told that it may have happened; or replay="reconcile", and look it up;
  - or, when doing it again does no harm, say so: world.effect('charge order 7', repeatable=True).
  Two different things need two names.
  promised: over all crashes an effect is seen from outside as if done once; effects with one key count once
repeat it with explore(..., replay='0:6') or pytest --crash-replay=0:6
with a key: 198 crash points, 99 recoveries, no failure
"""

SUBAGENTS: Final = """\
pi.user: Check the shop.
pi.system:
pi.assistant: Noted.
pi.tool-result: The watcher has started.
pi.tool-result: No news on prices.
pi.assistant: Noted.
pi.user: Report: No news on alarms.
pi.assistant: Noted.
"""

CHECKOUT: Final = """\
killed: exit code -9
CompletedOutcome(result=['aborted', 'failed', 'aborted', 'aborted'], status='completed')
again: exit code 0
charge amex, charge jcb, charge visa, refund amex, refund jcb, refund visa
killed: exit code -9
AbortedOutcome(reason='the customer left', status='aborted')
again: exit code 0
charge amex, charge jcb, charge mastercard, charge visa, refund amex, refund jcb, refund mastercard, refund visa
"""

SUBAGENT_CONTROL: Final = """\
Done: Measure ants and bees.
at work: example.worker (running) example.worker (running)
stopped: AbortedOutcome(reason='no bees today', status='aborted')
Report: Done: red ants only
"""

LATE_JOIN: Final = """\
killed -9
from the start:
  Tell me a story.
  There was a task that was kille
  There was a task that was killed, and it lived happily ever after.
joined:
  Tell me a story.
  There was a task that was kille
  There was a task that was killed, and it lived happily ever after.
came back:
  Tell me a story.
  There was a task that was kille
  There was a task that was killed, and it lived happily ever after.
again 0
"""

TODO_STATE: Final = """\
  nothing
  [ ] water the plants
  [ ] water the plants, [ ] book the train
  [ ] water the plants, [ ] book the train, [ ] pack
killed: exit code -9
  [ ] water the plants, [ ] book the train, [ ] pack
It is all on your list.
pi.user: [ ] water the plants
pi.system: [ ] water the plants
pi.assistant: [ ] water the plants
pi.tool-result: [ ] water the plants, [ ] book the train
pi.assistant: [ ] water the plants, [ ] book the train
pi.tool-result: [ ] water the plants, [ ] book the train, [ ] pack
pi.assistant: [ ] water the plants, [ ] book the train, [ ] pack
now: [x] water the plants, [ ] book the train, [ ] pack
again: exit code 0
"""

FORKS: Final = """\
It must be cheap. I know 2 of 2 towns.
I have no time. I know 2 of 2 towns.
root:
  user: Where can I go?
  assistant: (calls tools)
  tool_result: There is a train to Rome.
  tool_result: There is a train to Oslo.
  assistant: Where can I go? I know 2 of 2 towns.
  initial: ['Rome', 'Oslo']
  current: ['Rome', 'Oslo']
  as_of: ['Rome', 'Oslo']
a fork at the end:
  user: Where can I go?
  assistant: (calls tools)
  tool_result: There is a train to Rome.
  tool_result: There is a train to Oslo.
  assistant: Where can I go? I know 2 of 2 towns.
  user: It must be cheap.
  assistant: It must be cheap. I know 2 of 2 towns.
  initial: []
  current: ['Rome', 'Oslo']
  as_of: ['Rome', 'Oslo']
a fork at the first result:
  user: Where can I go?
  assistant: (calls tools)
  tool_result: There is a train to Rome.
  user: What do you know?
  assistant: What do you know? I know 1 of 2 towns.
  initial: []
  current: ['Rome', 'Oslo']
  as_of: ['Rome']
"""

TERMINAL_VIEW: Final = """\
> Is all well?
I look at the hosts first.
* check {'hosts': 3}
= 3 hosts answer.
All is well: every host answers.
-- idle; 38 tokens, tool calls: 1
"""

PLAN_MODE: Final = """\
killed -9
pi.user: Write the news.
pi.system: <mode>
Plan.
</mode>
pi.assistant: On it.
pi.tool-result: <harness>
[error] Tool write was blocked: plan first
</harness>
pi.assistant: On it.
pi.tool-result: news is empty
pi.assistant: On it.
pi.tool-result: news may be written
pi.system: <mode status="changed">
Carry out the plan.
</mode>
pi.assistant: On it.
pi.tool-result: news is written
pi.assistant: On it.
again 0
"""

REVIEWER: Final = """\
writer (Write! with read, write): Write the news.
reviewer (Review! with read): It is written.
the reviewer says: Write "well" with two l.
writer (Write! with read, write): Write "well" with two l.
reviewer (Review! with read): It is written.
the reviewer says: Good.
the news: All is well.
"""

INBOX: Final = """\
killed: exit code -9
the first: done
a follow-up: done
another: withdrawn
a steer: done
a write: done
a reset: done
  pi.user: Measure the ants.
  pi.assistant: Let me see.
  pi.tool-result: ants: 42
  example.note: {'text': 'It rains.'}
  pi.reset: So far: ants are 42.
  pi.user: In inches!
  pi.assistant: I read: In inches!
  pi.user: Now the bees.
  pi.assistant: I read: Now the bees.
again: exit code 0
"""

RELOAD: Final = """\
  told of: Look a price up, as of monday.
tuesday's code is installed, while monday's is at work
tea: the price of monday
  told of: Look a price up, as of tuesday.
salt: the price of tuesday
  told of:
<harness>
[error] Tool price is not available
</harness>
  told of: Look a price up, as of friday.
rice: the price of friday
"""

COMPACTION: Final = """\
the model sees about 118 tokens:
  user: The kitchen
the model sees about 244 tokens:
  user: The hall
the model sees about 369 tokens:
  user: The attic
the model sees about 495 tokens:
  user: The cellar
killed: exit code -9
the model sees about 172 tokens:
  user: The earlier part of this conversation is replaced by this summary of it. <summary> Kitchen, hall, attic and cellar were measured, 3.25 m from wall to wall. </summary>
  assistant: Noted: The cellar
  user: The garden
stored: pi.user, pi.assistant, pi.user, pi.assistant, pi.user, pi.assistant, pi.user, pi.assistant, pi.user, pi.compaction, pi.assistant
tokens: 495 -> 46
again: exit code 0
"""

APPROVAL: Final = """\
open: Move 500 euros to Ann?
killed: -9
open: Move 500 euros to Ann?
500 euros went to Ann.
open: Move 900 euros to Bob?
<harness>
[error] Tool transfer was blocked: not to Bob
</harness>
ledger: 500 euros to Ann
"""

PROMISES: Final = [
    ("quickstart.py", [], QUICKSTART),
    ("recovery.py", [], RECOVERY_CLOSED),
    ("recovery.py", ["--kill"], RECOVERY_KILLED),
    ("kill9.py", [], KILL9),
    ("tracker.py", [], TRACKER),
    ("append_probe.py", [], APPEND_PROBE),
    ("crash_test_your_tool.py", [], CRASH_TEST),
    ("subagents.py", [], SUBAGENTS),
    ("subagent_control.py", [], SUBAGENT_CONTROL),
    ("checkout.py", [], CHECKOUT),
    ("late_join.py", [], LATE_JOIN),
    ("todo_state.py", [], TODO_STATE),
    ("forks.py", [], FORKS),
    ("terminal_view.py", [], TERMINAL_VIEW),
    ("plan_mode.py", [], PLAN_MODE),
    ("reviewer.py", [], REVIEWER),
    ("inbox.py", [], INBOX),
    ("reload.py", [], RELOAD),
    ("compaction.py", [], COMPACTION),
    ("approval.py", [], APPROVAL),
]


def test_every_example_has_a_promise() -> None:
    assert {name for name, _, _ in PROMISES} == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "promised"), PROMISES, ids=[" ".join([n, *a]) for n, a, _ in PROMISES]
)
def test_an_example_keeps_its_promise_and_leaves_nothing_behind(
    tmp_path: Path, name: str, arguments: list[str], promised: str
) -> None:
    place = tmp_path / "place"
    temporary = tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        check=False,
        cwd=place,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert re.sub(r"^  \d+ \|", "  ID |", done.stdout, flags=re.MULTILINE) == promised
    assert done.stderr == ""
    assert [*place.iterdir(), *temporary.iterdir()] == []
