"""Virtual time for every async test that is not about real time; see the plugin."""

from __future__ import annotations

pytest_plugins = ["pidurable_actors.testing", "pytester"]
