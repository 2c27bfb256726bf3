"""A Java regular expression for topic names, as Python's `re` reads it.

What both read in the same way is taken over, and some constructs of Java are translated. Anything else is refused,
because another meaning finds other topics in silence. Names have ASCII letters, digits and `._-` only, so a class with
a class in it is the list of those characters that it has.

Source: java.util.regex.Pattern of Java 17.
"""

from __future__ import annotations

import re
import string

from kafka_sink.options.kinds import Problem

_NAMES = frozenset(f"{string.ascii_letters}{string.digits}._-")
_POSIX = {
    "Lower": string.ascii_lowercase, "Upper": string.ascii_uppercase, "Alpha": string.ascii_letters,
    "Digit": string.digits, "Alnum": string.ascii_letters + string.digits, "Punct": "._-",
}  # fmt: skip
_QUANTIFIER = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
_FLAGS = re.compile(r"\(\?[ims]+\)")
_GROUP = re.compile(r"\((?!\?)|\(\?(?:[ims]*-?[ims]*:|=|!|<=|<!|>)")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_NAMED_REFERENCE = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_HEX = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
_PROPERTY = re.compile(r"\\([pP])\{(\w+)\}")
_REFERENCE = re.compile(r"\\[1-9](?![0-9])")


def java_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern. Raises Problem for a construct that has no translation, re.error."""
    return re.compile(_Translation(text).whole(), re.ASCII)


class _Translation:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = re.search(r"\(\?[ms]*i", text) is not None

    def whole(self) -> str:
        found = []
        if flags := _FLAGS.match(self._text):
            found.append(self._taken(flags))
        while self._at < len(self._text):
            found.append(self._next())
        return "".join(found)

    def _next(self) -> str:
        text, at = self._text, self._at
        character = text[at]
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape()
        if character == "(":
            if named := _NAMED_GROUP.match(text, at):
                self._taken(named)
                return f"(?P<{named[1]}>"
            if group := _GROUP.match(text, at):
                return self._taken(group)
            raise self._refused()
        if character == "{":
            if (quantifier := _QUANTIFIER.match(text, at)) is None:
                raise self._refused()
            return self._taken(quantifier)
        self._at += 1
        return character

    def _escape(self) -> str:
        text, at = self._text, self._at
        kind = text[at + 1 : at + 2]
        if kind == "Q":
            return "".join(map(re.escape, self._quoted()))
        if named := _NAMED_REFERENCE.match(text, at):
            self._taken(named)
            return f"(?P={named[1]})"
        if number := _REFERENCE.match(text, at):
            return f"(?:{self._taken(number)})"
        if kind and kind in "bBAdDwWsS":
            self._at += 2
            return text[at : at + 2]
        if kind and kind in "zZ":
            self._at += 2
            return r"\Z"
        if kind and kind in "pP":
            return _listed(self._property())
        return re.escape(self._literal())

    # --- classes ------------------------------------------------------------------------------------------------------

    def _class(self) -> str:
        begin = self._at
        plain, found = self._members()
        if plain is not None:
            return plain
        if self._ignores_case:
            self._at = begin
            raise self._refused()
        return _listed(found)

    def _members(self) -> tuple[str | None, frozenset[str]]:
        """Return a class as Python's, or None if that has none, and those characters of names that it has."""
        begin = self._at
        self._at += 1
        is_negated = self._has("^")
        if is_negated:
            self._at += 1
        if self._has("]"):
            raise self._refused()  # Versions of Java differ.
        parts, found, is_plain = self._operand()
        if self._has("&&"):
            if is_negated or not parts:
                raise self._refused()
            self._at += 2
            if self._has("["):
                other = self._members()[1]
            else:
                others, other, is_other_plain = self._operand()
                if not others or not is_other_plain:
                    raise self._refused()
            is_plain, found = False, found & other
        if not self._has("]"):
            raise self._refused()
        if is_negated and not is_plain:
            self._at = begin
            raise self._refused()  # Versions of Java differ.
        self._at += 1
        if is_negated:
            found = _NAMES - found
        return (f"[{'^' if is_negated else ''}{''.join(parts)}]" if is_plain else None), found

    def _operand(self) -> tuple[list[str], frozenset[str], bool]:
        parts: list[str] = []
        found: frozenset[str] = frozenset()
        is_plain = True
        while self._at < len(self._text) and not self._has("]") and not self._has("&&"):
            if self._has("["):
                found |= self._members()[1]
                is_plain = False
                parts.append("")
                continue
            kind = self._text[self._at + 1 : self._at + 2] if self._has("\\") else ""
            if kind and kind in "pP":
                part, is_plain = "", False
                found |= self._property()
            elif kind and kind in "dDwWsS":
                part = self._text[self._at : self._at + 2]
                self._at += 2
                found |= _of(part)
            elif kind == "Q":
                quoted = self._quoted()
                part = "".join(map(re.escape, quoted))
                found |= _NAMES & set(quoted)
            else:
                part = self._range()
                found |= _of(part)
            parts.append(part)
        return parts, found, is_plain

    def _range(self) -> str:
        first = self._literal()
        following = self._text[self._at + 1 : self._at + 2]
        if not self._has("-") or following in ("]", "["):
            return re.escape(first)
        self._at += 1
        last = self._literal()
        if last < first:
            raise self._refused()
        return f"{re.escape(first)}-{re.escape(last)}"

    # --- parts --------------------------------------------------------------------------------------------------------

    def _literal(self) -> str:
        """Return one character, also an escaped one."""
        text, at = self._text, self._at
        if not self._has("\\"):
            if at >= len(text):
                raise self._refused()
            self._at += 1
            return text[at]
        if number := _HEX.match(text, at):
            return chr(int(self._taken(number)[2:], 16))
        kind = text[at + 1 : at + 2]
        if kind and kind in "tnrfa":
            self._at += 2
            return "\t\n\r\f\a"["tnrfa".index(kind)]
        if not kind or (kind.isascii() and kind.isalnum()):
            raise self._refused()
        self._at += 2
        return kind

    def _property(self) -> frozenset[str]:
        named = _PROPERTY.match(self._text, self._at)
        if named is None or named[2] not in _POSIX or self._ignores_case:
            raise self._refused()
        self._taken(named)
        found = frozenset(_POSIX[named[2]])
        return found if named[1] == "p" else _NAMES - found

    def _quoted(self) -> str:
        begin = self._at + 2
        end = self._text.find(r"\E", begin)
        self._at = len(self._text) if end < 0 else end + 2
        return self._text[begin:] if end < 0 else self._text[begin:end]

    def _has(self, start: str) -> bool:
        return self._text.startswith(start, self._at)

    def _taken(self, found: re.Match[str]) -> str:
        self._at = found.end()
        return found[0]

    def _refused(self) -> Problem:
        return Problem(f"what begins at position {self._at} is not read as Java reads it; write it in another way")


def _of(part: str) -> frozenset[str]:
    within = re.compile(f"[{part}]", re.ASCII)
    return frozenset(filter(within.match, _NAMES))


def _listed(characters: frozenset[str]) -> str:
    """Return a class of these. NUL is in no name."""
    return f"[{''.join(map(re.escape, sorted(characters))) or chr(92) + '0'}]"
