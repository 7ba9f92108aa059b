"""Kits for testing: fakes, fault models and conformance suites, each a module imported by name.

Nothing of the package imports from here.
"""

__all__: list[str] = []
