"""Programs that do the same work on other runtimes.

Each module runs as a script of its own, under the interpreter that has the runtime; it may import
nothing of this project but `_report`, which lies beside it.
"""
