"""The rules of the house style that a program can check, each from one module to its offences."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.project.checkout import NAME, Source

__all__ = [
    "Rule",
    "broad_excepts",
    "clocks_and_chance",
    "escapes",
    "long_bodies",
    "long_tests_without_goal",
    "oversized",
    "unfinished",
    "without_docstring",
]

Rule: TypeAlias = Callable[[Source], Iterator[str]]

_MODULE_LINES: Final = 400
_MODULE_LINES_WALL: Final = 600
_BODY_LINES: Final = 50
_TEST_LINES: Final = 40

_CLOCK_AND_CHANCE: Final = frozenset({"time", "random", "uuid", "secrets"})
_MAY_READ_THEM: Final = frozenset({f"{NAME}._clock", f"{NAME}._ids", f"{NAME}.records._ids"})

_MOCKS: Final = ("unittest.mock", "mock", "pytest_mock")
_ESCAPES: Final = frozenset(
    {
        "pytest.MonkeyPatch",
        "pytest.importorskip",
        "pytest.mark.flaky",
        "pytest.mark.skip",
        "pytest.mark.skipif",
        "pytest.skip",
        "time.sleep",
    }
)

_UNFINISHED: Final = re.compile(
    r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b|pragma:\s*no\s*cover"
)
_DIRECTIVE: Final = re.compile(
    r"#\s*(?:noqa|type|pyright|pragma|ruff|mypy)\b:?[\w\[\], :-]*?(?=#|$|\s-)"
)


def oversized(source: Source) -> Iterator[str]:
    """Past the stop a module gives its reason in its docstring; past the wall none helps."""
    count = _lines(source)
    if count > _MODULE_LINES_WALL:
        yield f"{source.path}: {count} lines, the wall is at {_MODULE_LINES_WALL}"
    elif count > _MODULE_LINES and "Size:" not in (ast.get_docstring(source.tree) or ""):
        yield f"{source.path}: {count} lines; past {_MODULE_LINES} the docstring says why (Size:)"


def long_bodies(source: Source) -> Iterator[str]:
    """A function that should be several."""
    for function, lines in _bodies(source):
        if lines > _BODY_LINES:
            where = f"{source.at(function.lineno)}: {function.name}"
            yield f"{where} has {lines} lines, at most {_BODY_LINES}"


def long_tests_without_goal(source: Source) -> Iterator[str]:
    """A long test starts with a docstring: its goal and its method."""
    for function, lines in _bodies(source):
        if (
            lines > _TEST_LINES
            and function.name.startswith("test_")
            and not ast.get_docstring(function)
        ):
            yield f"{source.at(function.lineno)}: {function.name} has {lines} lines and no goal"


def without_docstring(source: Source) -> Iterator[str]:
    """A module that does not say what it owns; an empty file says nothing and needs nothing."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield f"{source.path}: no docstring"


def unfinished(source: Source) -> Iterator[str]:
    """Marks of work left for later."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if _UNFINISHED.search(line):
            yield f"{source.at(number)}: {line.strip()}"


def clocks_and_chance(source: Source) -> Iterator[str]:
    """A hidden input: time or chance read where nobody can replace it."""
    if source.module in _MAY_READ_THEM:
        return
    for name, line in _imported(source):
        if name.split(".", maxsplit=1)[0] in _CLOCK_AND_CHANCE:
            yield f"{source.at(line)}: imports {name}; take a clock or chance as an argument"


def escapes(source: Source) -> Iterator[str]:
    """Ways for a test to be about something else than the code, or about nothing."""
    for name, line in _imported(source):
        if name in _ESCAPES or any(name == mock or name.startswith(f"{mock}.") for mock in _MOCKS):
            yield f"{source.at(line)}: imports {name}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in _ESCAPES:
            yield f"{source.at(node.lineno)}: {ast.unparse(node)}"
        elif isinstance(node, ast.arg) and node.arg == "monkeypatch":
            yield f"{source.at(node.lineno)}: monkeypatch"


def broad_excepts(source: Source) -> Iterator[str]:
    """A handler that may swallow a bug or a cancellation, without a comment at it or above."""
    reasons = _lines_with_a_reason(source.text)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler) or not _is_broad(node.type):
            continue
        if not reasons & {node.lineno, node.lineno - 1}:
            yield f"{source.at(node.lineno)}: a broad except without a reason beside it"


def _is_broad(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(ast.unparse(name) in {"Exception", "BaseException"} for name in names)


def _lines_with_a_reason(text: str) -> set[int]:
    """Lines with a comment that says something to a person besides directives to tools."""
    return {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and re.search(r"[a-zA-Z]{2}", _DIRECTIVE.sub("", token.string))
    }


def _imported(source: Source) -> Iterator[tuple[str, int]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _bodies(source: Source) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Every function with the lines of its body, docstring excluded."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield node, (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _lines(source: Source) -> int:
    return len(source.text.splitlines())
