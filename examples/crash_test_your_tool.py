"""A crash test finds the double charge that no ordinary test sees, and a key mends it.

Run it: ``python examples/crash_test_your_tool.py``. The same story is a pytest test when it is
written as ``@pytest.mark.crash_points() async def test_charge(crash_world)``; see the README.
"""

import pidurable_actors as pi
from pidurable_actors.testing import CrashFailure, World, explore


def ask(at: pi.ScriptedContext) -> pi.Reply:
    return pi.Reply("Paid." if at.tool_results() else "", tool_calls=[] if at.answers else [CHARGE])


CHARGE = pi.ToolCall("charge", {"order": 7, "cents": 4_200})


async def pay(world: World, charge: pi.Tool) -> None:
    """What a process does; the same code runs again after each crash."""
    registry, models = pi.Registry([pi.Extension("shop", tools=[charge])]), pi.ScriptedModel(ask)
    async with world.open_harness(registry=registry, models=pi.Models([models])) as harness:
        root = await harness.root(agent=pi.AgentChoice(model="scripted/demo"))
        submission = await root.submit("Pay order 7.", request_id="pay-7")
        assert await submission.answer() == "Paid."


async def without_key(world: World) -> None:
    @pi.tool(replay="safe")  # A promise that does not hold: charging again is not harmless.
    async def charge(order: int, cents: int) -> str:
        """Charge the card."""
        world.effect(f"charge order {order}")  # In a real tool: await bank.charge(order, cents)
        return "charged"

    await pay(world, charge)


async def with_key(world: World) -> None:
    @pi.tool(replay="safe")  # Now it does: the bank knows the key, which a rerun repeats.
    async def charge(order: int, cents: int, *, api: pi.ToolApi) -> str:
        """Charge the card."""
        world.effect(f"charge order {order}", key=api.idempotency_key)
        return "charged"

    await pay(world, charge)


if __name__ == "__main__":
    try:
        explore(without_key)
    except CrashFailure as failure:
        print("without a key:", failure)
    report = explore(with_key, depth=2)
    print(f"with a key: {report.points} crash points, {report.recoveries} recoveries, no failure")
