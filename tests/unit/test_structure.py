"""What the sources look like, as far as a test can say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import runguard

ROOT = Path(runguard.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
LONGEST_MODULE, LONGEST_FUNCTION = 300, 45
DRIVERS = {"pymysql", "psycopg", "sqlite3", "tomllib", "tomli"}

every_module = pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])


@every_module
def test_modules_and_functions_are_short(path: Path) -> None:
    """A module is read in one go, a function seen in one piece."""
    source = path.read_text()
    assert len(source.splitlines()) <= LONGEST_MODULE
    lengths = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


@every_module
def test_a_module_says_what_it_knows(path: Path) -> None:
    """Each module begins with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text()))


def imports_at_load(tree: ast.AST) -> set[str]:
    """Return the packages that a module imports when it is loaded; blocks under TYPE_CHECKING are not."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                found |= {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom():
                found.add((node.module or "").partition(".")[0])
            case _:
                found |= imports_at_load(node)
    return found


@every_module
def test_drivers_load_on_demand(path: Path) -> None:
    """A broken or missing driver hurts only the backend that needs it: nothing imports one when it is loaded."""
    loaded = imports_at_load(ast.parse(path.read_text()))
    assert not loaded & DRIVERS
    if path.parent.name != "cli":
        assert "click" not in loaded


@every_module
def test_only_session_locks_are_used(path: Path) -> None:
    """A transaction's advisory lock would end with its transaction, and exclude nobody behind a pooler."""
    assert "_xact_" not in path.read_text()
