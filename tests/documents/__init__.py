"""Documents, history, forks and the log of commits, through the real harness on every storage."""
