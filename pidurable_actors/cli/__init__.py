"""The command line, ``pidurable``: parsing in ``__main__``, verbs and output in files of their own.

It offers nothing to import: a program uses the other rooms, a person uses the command.
"""

__all__: list[str] = []
