"""Counts the lines of the decoders that a corpus reaches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from kafka_sink.commit import markers
from kafka_sink.kafka.protocol import connection, message_reader, sasl

# Those that do nothing but take a peer's bytes; others write requests as well.
MODULES: tuple[ModuleType, ...] = (connection, markers, message_reader, sasl)


@dataclass
class Lines:
    """By module: the lines in functions, and those of them that ran while `counting`."""

    there: dict[str, set[int]] = field(default_factory=dict)
    reached: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for module in MODULES:
            path = Path(str(module.__file__))
            code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
            self.there[str(path)] = set(_lines_of_functions(code))
            self.reached[str(path)] = set()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        # Of who measures the coverage of the tests, for one.
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._on_line if frame.f_code.co_filename in self.reached else None

    def _on_line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.reached[frame.f_code.co_filename].add(frame.f_lineno)
        return self._on_line

    @property
    def counts(self) -> tuple[int, int]:
        both = [(self.reached[path] & there, there) for path, there in self.there.items()]
        return sum(len(reached) for reached, _ in both), sum(len(there) for _, there in both)

    def missed(self) -> Iterator[tuple[str, list[int]]]:
        for path, there in self.there.items():
            if lines := sorted(there - self.reached[path]):
                yield Path(path).name, lines


def _lines_of_functions(code: CodeType) -> Iterable[int]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            # The first line is the one that defines it; a class has no other of its own.
            if constant.co_flags & 0x02:  # CO_NEWLOCALS: a function
                yield from {line for *_, line in constant.co_lines() if line and line != constant.co_firstlineno}
            yield from _lines_of_functions(constant)
