"""Files that only the type checkers read."""
