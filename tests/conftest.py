"""Virtual time for every async test that is not about real time; see the plugin."""

from __future__ import annotations

import signal

pytest_plugins = ["pidurable_actors.testing", "pytester"]


def pytest_configure() -> None:
    """Take Ctrl-C as at a terminal, whoever started the tests.

    A shell that runs a program in its background lets it ignore the signal, and every process that
    a test starts would inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
