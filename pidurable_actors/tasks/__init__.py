"""The built-in tasks; each is a module of its own, written with the public runtime alone."""

__all__: list[str] = []
