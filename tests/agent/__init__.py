"""Tests of the agent room: tools, sections, hooks, the registry."""
