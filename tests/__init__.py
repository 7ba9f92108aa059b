"""Every folder of tests is a package, so that two rooms may both have a ``test_memory.py``."""
