"""Speed, memory and scale, measured: ``python -m tests.benchmarks`` prints the table of goals.

Every measurement runs in a fresh child process. Times of a shared machine differ from run to run,
so nothing here asserts one: what counts are the ratios to raw SQLite and to other runtimes, taken
in the same run on the same file system.
"""
