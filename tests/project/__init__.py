"""Tests about the project itself: its layers, doors, style, README and test plugin."""
