"""Pinned ids and markers of many slots, which are pickled as plain columns and made one by one when they are read.

Spark gives the facts of all slots to every task, and a task reads those of its own slot. As objects, those of 1,024
slots take a task 3 ms to unpickle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from kafka_sink.commit.markers import Ids, Marker

_NOT_PINNED = "-"


class Pins(Sequence[Ids | None]):
    """The ids that a decision pins, by slot; None for a slot that was visible before."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._texts = text.split()

    @classmethod
    def of(cls, pinned: Iterable[Ids | None]) -> Pins:
        return cls(" ".join(_NOT_PINNED if ids is None else str(ids) for ids in pinned))

    def __reduce__(self) -> tuple[Any, ...]:
        return Pins, (self._text,)

    @overload
    def __getitem__(self, slot: int) -> Ids | None: ...
    @overload
    def __getitem__(self, slot: slice) -> tuple[Ids | None, ...]: ...
    def __getitem__(self, slot: int | slice) -> Ids | tuple[Ids | None, ...] | None:
        if isinstance(slot, slice):
            return tuple(map(_read, self._texts[slot]))
        return _read(self._texts[slot])

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)


def _read(text: str) -> Ids | None:
    return None if text == _NOT_PINNED else Ids.read(text)


class Markers(Mapping[int, Marker]):
    """Markers by slot."""

    def __init__(self, slots: Sequence[int], *columns: Sequence[Any]) -> None:
        """`slots`: ascending. `columns`: a field of Marker each, in the order of `slots`."""
        self._slots = slots
        self._columns = columns

    @classmethod
    def of(cls, markers: Mapping[int, Marker]) -> Markers:
        slots = sorted(markers)
        in_order = [markers[slot] for slot in slots]
        # Equal query ids become one object, which is pickled once.
        query_ids = {marker.query_id: marker.query_id for marker in in_order}
        return cls(
            slots,
            [marker.micro_batch_id for marker in in_order],
            [query_ids[marker.query_id] for marker in in_order],
            [marker.fingerprint for marker in in_order],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Markers, (self._slots, *self._columns)

    def __getitem__(self, slot: int) -> Marker:
        place = bisect_left(self._slots, slot)
        if place == len(self._slots) or self._slots[place] != slot:
            raise KeyError(slot)
        return Marker(*(column[place] for column in self._columns))

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def __len__(self) -> int:
        return len(self._slots)
