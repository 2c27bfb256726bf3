"""Where a mutant belongs: the one place of the package that its pattern matches, and the source with the mistake."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from ast_grep_py import Config, Relation, Rule, SgNode, SgRoot

from mutants.mutant import Language, Mutant

SUFFIXES: Mapping[str, Language] = {".py": "python", ".c": "c", ".h": "c"}
_DOTTED_NAME = re.compile(r"\w+(\.\w+)*")
_METAVARIABLE = re.compile(r"(\$\$\$|\$)([A-Z_][A-Z0-9_]*)")
_NOT_A_COMMENT = Rule({"not": Rule(kind="comment")})
_DEFINITIONS = ("function_definition", "class_definition")


class MutantBroken(Exception):
    """The mutant cannot be tried: `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Module:
    """A source file of the package; `path` is relative to the root."""

    path: Path
    text: str

    @property
    def language(self) -> Language:
        return SUFFIXES[self.path.suffix]

    @cached_property
    def root(self) -> SgNode:
        return SgRoot(self.text, self.language).root()


Match = tuple[Module, SgNode]


def modules(root: Path, package: str) -> tuple[Module, ...]:
    paths = sorted(path for path in (root / package).rglob("*") if path.suffix in SUFFIXES)
    return tuple(Module(path.relative_to(root), path.read_text()) for path in paths)


def mutated(package: tuple[Module, ...], mutant: Mutant) -> Module:
    """The module that the mutant belongs to, with the mistake in it. Raises MutantBroken."""
    searched = [module for module in package if module.language == mutant.language]
    module, match = _only(searched, _rule(mutant), "its pattern")
    given = [_only(searched, Rule(pattern=pattern), f"what is given, {pattern},") for pattern in mutant.given]
    replacement = _filled_in(mutant.replacement, [(module, match), *given])
    start, end = match.range().start.index, _last(match, len(_statements(mutant))).range().end.index
    text = module.text[:start] + replacement + module.text[end:]
    if module.language == "python":
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise MutantBroken(f"{module.path} is no Python: {error}") from error
    return Module(module.path, text)


def _only(searched: Sequence[Module], rule: Rule, what: str) -> Match:
    """The one match of `rule`. Raises MutantBroken for none or several."""
    try:
        found = [(module, node) for module in searched for node in module.root.find_all(Config(rule=rule))]
    except RuntimeError as error:
        raise MutantBroken(f"no pattern: {str(error).partition('Stack backtrace')[0]}") from error
    if len(found) != 1:
        places = "".join(f", {module.path}:{node.range().start.line + 1}" for module, node in found[:5])
        raise MutantBroken(f"{what} is found {len(found)} times{places}")
    return found[0]


def _last(first: SgNode, count: int) -> SgNode:
    """Of `count` statements of which `first` is one."""
    statements = [first, *(node for node in first.next_all() if node.kind() != "comment")]
    return statements[count - 1]


def _statements(mutant: Mutant) -> tuple[str, ...]:
    return (mutant.pattern,) if isinstance(mutant.pattern, str) else mutant.pattern


def _rule(mutant: Mutant) -> Rule:
    statements = _statements(mutant)
    rule = Rule(pattern=statements[0]) if len(statements) == 1 else _sequence(statements)
    if not mutant.within:
        return rule
    return Rule(all=[rule, _inside(mutant.within)])


def _sequence(statements: tuple[str, ...]) -> Rule:
    first, *rest = statements
    # A statement that is an expression has a node of its own around it, and that is what has neighbours.
    around = Rule(kind="expression_statement", has={"pattern": first, "stopBy": "neighbor"})
    rule = Rule(any=[Rule(pattern=first), around])
    if not rest:
        return rule
    following = Relation(all=[_sequence(tuple(rest))], stopBy=_NOT_A_COMMENT)
    return Rule(all=[rule, Rule(precedes=following)])


def _inside(within: str) -> Rule:
    if not _DOTTED_NAME.fullmatch(within):
        return Rule(inside={"pattern": within, "stopBy": "end"})
    around: Relation | None = None
    for name in within.split("."):
        definition = Relation(
            any=[Rule(kind=kind) for kind in _DEFINITIONS], has={"field": "name", "regex": f"^{name}$"}, stopBy="end"
        )
        if around is not None:
            definition["inside"] = around
        around = definition
    assert around is not None
    return Rule(inside=around)


def _filled_in(template: str, captured: Sequence[Match]) -> str:
    """The template with the captured text, indented as the place of the first match."""
    module, match = captured[0]
    indentation = _indentation(module.text, match.range().start.index)
    lines = []
    for line in template.split("\n"):
        margin = indentation + _indentation(line, len(line))
        lines.append(_METAVARIABLE.sub(partial(_text, captured=captured, margin=margin), line))
    return ("\n" + indentation).join(lines)


def _text(metavariable: re.Match[str], captured: Sequence[Match], margin: str) -> str:
    sigil, name = metavariable.groups()
    for module, match in captured:
        single = match.get_match(name)
        nodes = [single] if single is not None else match.get_multiple_matches(name)
        if nodes:
            start, end = nodes[0].range().start.index, nodes[-1].range().end.index
            return module.text[start:end].replace("\n" + _indentation(module.text, start), "\n" + margin)
    if sigil == "$$$":
        return ""
    raise MutantBroken(f"nothing is captured for ${name}")


def _indentation(text: str, position: int) -> str:
    """Of the line that `position` is in."""
    line = text[text.rfind("\n", 0, position) + 1 :].partition("\n")[0]
    return line[: len(line) - len(line.lstrip(" "))]
