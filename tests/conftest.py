"""Virtual time for every async test that is not about real time; see the plugin."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["pidurable_actors.testing", "pytester"]

# How long an example takes says something of the machine, and is not what is tested.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure() -> None:
    """Take Ctrl-C as at a terminal, whoever started the tests.

    A shell that runs a program in its background lets it ignore the signal, and every process that
    a test starts would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
