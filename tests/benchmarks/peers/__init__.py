"""Programs that do the same work on other runtimes.

Each module runs on its own, under the interpreter that has the runtime; of this project it may
import nothing but ``child``, which needs the standard library alone.
"""
