"""Whether a test is one of the gate, read from its source."""

import ast
import re
from pathlib import Path

_LEAVES = re.compile(r"pytest\.mark\.(long|chaos|kerberos)\b")


def stays(path: Path, name: str, leaves: re.Pattern[str] = _LEAVES) -> bool:
    """Return whether `make test` runs the test, or the class, `name` of `path`. Raises LookupError if it is gone."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    if name not in {getattr(node, "name", getattr(node, "id", None)) for node in nodes}:
        raise LookupError(f"{path} has no {name}")
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]
    marks = {ast.unparse(decorator) for function in functions for decorator in function.decorator_list}
    marks |= {ast.unparse(node.value) for node in nodes if isinstance(node, ast.Assign) and _is_pytestmark(node)}
    return not any(leaves.search(mark) for mark in marks if "param(" not in mark)


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
