"""A mutant: one mistake, anchored in the package by a structural pattern instead of a path and a line."""

from dataclasses import dataclass
from typing import Literal

Language = Literal["python", "c"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name`: what goes wrong. `rule`: what it breaks, a KIP, a class of Kafka's or a sentence of a document.

    `pattern` is ast-grep's: https://ast-grep.github.io/guide/pattern-syntax.html. Metavariables stand for private names
    and local variables, so that a rename leaves the anchor as it is, and any module of the package may hold the match.
    Several patterns are statements that follow one another. `replacement` takes the place of all of them and may use
    their metavariables.

    `within` tells matches apart: the name of the function or class around the match, one name inside another with
    dots between them, or else a pattern. `given`: patterns found once each in the package, for names that only the
    replacement uses.

    `killer`: the test, by pytest's node id, that fails with the mutant. A number: the simulation does within so many
    seeds. `fallback`: only a process without the compiled kernel runs the code."""

    # The table has these five by their place, the others by their name.
    name: str
    rule: str
    pattern: str | tuple[str, ...]
    replacement: str
    killer: str | int
    within: str = ""
    given: tuple[str, ...] = ()
    language: Language = "python"
    fallback: bool = False
