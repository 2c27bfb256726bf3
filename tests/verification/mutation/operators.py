"""Small mistakes by rule: every place of a module where one can be made.

    comparison   a < b  ->  a <= b, a >= b;  ==, is, in  ->  their opposites
    logic        and <-> or;  one operand left out;  not x  ->  x;  True <-> False
    condition    if, while, a conditional expression, a comprehension's if  ->  always, never
    arithmetic   + <-> -, * -> //, // -> *, % -> //, ** -> *, << <-> >>, | <-> &;  -x  ->  x
    number       n  ->  n + 1, n - 1
    result       return x  ->  return None
    entry        one of a module's table left out
    deletion     a call, an assignment to an attribute or an item, del, raise, break, continue, yield

Each is a replacement in the text, so that a mutant reads as the line it changes. Nothing is made of what no run tells:
annotations, decorators, assertions (they are for the type checker), imports, texts of messages. An assignment to a
local name is not deleted: the name is then unknown, which any test finds.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

# What is looked into, where that is not all of a node.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.FunctionDef: ("args", "body"), ast.AsyncFunctionDef: ("args", "body"),
    ast.arguments: ("defaults", "kw_defaults"), ast.ClassDef: ("body",), ast.AnnAssign: ("value",), ast.Assert: (),
    ast.Import: (), ast.ImportFrom: (), ast.JoinedStr: (),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")), ast.LtE: ("<=", ("<", ">")), ast.Gt: (">", (">=", "<=")), ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.Is: ("is", ("is not",)), ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)), ast.NotIn: (r"not\s+in", ("in",)),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake in the module at `path`. `function`: its qualified name; empty for the module's own level. `line`
    counts from 1. `before`, `after`: the lines it changes, each run of white space as one space: with `path` and
    `function` what a mutation is known by, as lines move. The UTF-8 bytes from `start` to `end` become `text`."""

    path: str
    function: str
    operator: str
    line: int
    before: str
    after: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        return _replaced(source.encode(), self.start, self.end, self.text).decode()


def mutations(path: str, source: str) -> list[Mutation]:
    """All mistakes that can be made in `source`, the module at `path`, in the order of their places."""
    text = _Text(source)
    found: dict[tuple[int, int, str], Mutation] = {}
    for function, node in _walk(ast.parse(source), ()):
        edits = [*_edits(node, text), *(() if function else _entries(node, text))]
        for operator, start, end, replacement in edits:
            before, after = text.lines(start, end, replacement)
            mutation = Mutation(path, function, operator, text.line(start), before, after, start, end, replacement)
            found.setdefault((start, end, replacement), mutation)
    return sorted(found.values(), key=lambda each: (each.start, each.end, each.text))


def _walk(node: ast.AST, scope: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """`node` and all that is looked into, each with the function it is in."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield ".".join(scope), node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        scope = (*scope, node.name)
    for field in _FIELDS.get(type(node), node._fields):
        value = getattr(node, field)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, scope)


# An operator's name, and the bytes from .. to .. that become the text.
_Edit = tuple[str, int, int, str]


def _edits(node: ast.AST, text: _Text) -> Iterator[_Edit]:
    match node:
        case ast.Compare(left=left, ops=operators, comparators=comparators):
            for (one, other), operator in zip(pairwise([left, *comparators]), operators, strict=True):
                sign, instead = _COMPARISONS[type(operator)]
                for replacement in instead:
                    yield ("comparison", *text.sign(one, other, sign), replacement)
        case ast.BoolOp(op=operator, values=values):
            sign, opposite = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
            for one, other in pairwise(values):
                yield ("logic", *text.sign(one, other, sign), opposite)
            for value in values:
                yield ("logic", *text.span(value), "True" if sign == "and" else "False")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield ("logic", *text.word(node, operand, "not "), "")
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield ("arithmetic", *text.word(node, operand, "-"), "")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
            sign, replacement = _ARITHMETIC[type(operator)]
            yield ("arithmetic", *text.sign(left, right, re.escape(sign)), replacement)
        case ast.Constant(value=bool(value)):
            yield ("logic", *text.span(node), str(not value))
        case ast.Constant(value=int(value)):
            yield ("number", *text.span(node), str(value + 1))
            yield ("number", *text.span(node), str(value - 1) if value else "-1")
        case ast.If(test=test) | ast.IfExp(test=test):
            yield ("condition", *text.span(test), "True")
            yield ("condition", *text.span(test), "False")
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield ("condition", *text.span(test), "False")
        case ast.comprehension(ifs=conditions):
            yield from (("condition", *text.span(each), taken) for each in conditions for taken in ("True", "False"))
        case ast.Return(value=ast.expr() as value) if not _is_empty(value):
            yield ("result", *text.span(value), "None")
        case ast.AugAssign(target=target, op=operator, value=value):
            if type(operator) in _ARITHMETIC:
                sign, replacement = _ARITHMETIC[type(operator)]
                yield ("arithmetic", *text.sign(target, value, re.escape(sign) + "="), replacement + "=")
            yield ("deletion", *text.span(node), "pass")
        case ast.Assign(targets=targets) if not any(isinstance(each, (ast.Name, ast.Tuple)) for each in targets):
            yield ("deletion", *text.span(node), "pass")
        case ast.Expr(value=value) if not isinstance(value, ast.Constant):
            yield ("deletion", *text.span(node), "pass")
        case (
            ast.AnnAssign(target=ast.Attribute() | ast.Subscript(), value=ast.expr())
            | ast.Delete() | ast.Raise() | ast.Break() | ast.Continue()
        ):  # fmt: skip
            yield ("deletion", *text.span(node), "pass")


def _entries(node: ast.AST, text: _Text) -> Iterator[_Edit]:
    """Of a table of the module's."""
    match node:
        case ast.Dict(keys=keys, values=values):
            spans = [(text.span(key)[0], text.span(value)[1]) for key, value in zip(keys, values, strict=True) if key]
        case ast.Set(elts=elements) | ast.List(elts=elements) | ast.Tuple(elts=elements, ctx=ast.Load()):
            spans = [text.span(element) for element in elements]
        case _:
            return
    for (start, _), (following, _) in pairwise(spans):
        yield "entry", start, following, ""
    if len(spans) > 1:
        yield "entry", spans[-2][1], spans[-1][1], ""


def _is_empty(value: ast.expr) -> bool:
    """What a caller that looks only whether it is true cannot tell from None."""
    return isinstance(value, ast.Constant) and value.value in (None, False)


class _Text:
    """A module's text, in UTF-8, as the syntax tree counts it."""

    def __init__(self, source: str) -> None:
        self._bytes = source.encode()
        lines = self._bytes.splitlines(keepends=True)
        self._line_starts = [0, *accumulate(len(line) for line in lines)]

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno and node.end_col_offset is not None
        return (
            self._line_starts[node.lineno - 1] + node.col_offset,
            self._line_starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def sign(self, one: ast.expr, other: ast.expr, pattern: str) -> tuple[int, int]:
        """Where the operator `pattern` stands between two operands; parentheses of theirs are between them, too."""
        return self._search(self.span(one)[1], self.span(other)[0], pattern)

    def word(self, node: ast.expr, operand: ast.expr, word: str) -> tuple[int, int]:
        return self._search(self.span(node)[0], self.span(operand)[0], re.escape(word))

    def _search(self, start: int, end: int, pattern: str) -> tuple[int, int]:
        found = re.search(pattern.encode(), self._bytes[start:end])
        assert found is not None, f"{pattern} in {self._bytes[start:end]!r}"
        return start + found.start(), start + found.end()

    def line(self, place: int) -> int:
        return bisect_right(self._line_starts, place)

    def lines(self, start: int, end: int, replacement: str) -> tuple[str, str]:
        """The lines that a replacement changes, before and after."""
        first = self._line_starts[self.line(start) - 1]
        last = self._line_starts[min(self.line(end), len(self._line_starts) - 1)]
        whole = self._bytes[first:last]
        changed = _replaced(whole, start - first, end - first, replacement)
        return " ".join(whole.decode().split()), " ".join(changed.decode().split())


def _replaced(source: bytes, start: int, end: int, text: str) -> bytes:
    return source[:start] + text.encode() + source[end:]
