"""How much work a PKCS#12 store asks for before it can be read: the iterations of its key derivations.

Iteration counts are in the file, so a hostile file could keep a connection busy for hours. They are found without
knowledge of the structure: in each of the three forms (MacData of RFC 7292, its PBE parameters, PBKDF2-params of
RFC 8018) the count is an INTEGER behind the OCTET STRING of the salt. Counts inside of encrypted parts are not seen.
Only somebody who knows the password can write those.

Non-obvious: stores of BouncyCastle are BER, with lengths that are known only at the end, and octet strings in pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# An element takes 1 us; a store with a hundred CAs in plaintext has 15,000.
MAX_ELEMENTS = 300_000
# Nothing that Java or OpenSSL write is nested as deep.
MAX_DEPTH = 100
_INTEGER, _OCTET_STRING, _OBJECT_ID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30
_CONSTRUCTED, _LONG_TAG, _LONG_LENGTH, _INDEFINITE = 0x20, 0x1F, 0x80, 0x80
# 1.3.6.1.4.1.11591.4.11 (RFC 7914): the work is a product, and Java has no stores with it.
_SCRYPT = bytes.fromhex("2b06010401da47040b")


class TooCostly(ValueError):
    """The store asks for scrypt, or has too many elements to look for its iteration counts."""


class NotPkcs12(ValueError):
    """The bytes are not ASN.1 in DER or BER."""


def iterations(content: bytes) -> int:
    """Return the sum of the iteration counts that are visible in a PKCS#12 store. Raises TooCostly, NotPkcs12."""
    search = _Search()
    search.documents.append((content, 0))
    while search.documents:
        search.look_into(*search.documents.pop())
    return search.iterations


@dataclass(slots=True)
class _Open:
    """A constructed element whose content is being read. `end`: None if a mark ends it. `before`: tag of the sibling
    read last. `pieces`: of an octet string."""

    tag: int
    end: int | None
    before: int = 0
    pieces: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class _Search:
    iterations: int = 0
    elements: int = 0
    documents: list[tuple[bytes, int]] = field(default_factory=list)

    def look_into(self, data: bytes, depth: int) -> None:
        """Count in `data`. Octet strings that may have more in them become documents."""
        stack, at = [_Open(0, len(data))], 0
        while True:
            while stack and stack[-1].end is not None and at >= stack[-1].end:
                self._close(stack, depth)
            if not stack:
                return
            try:
                at = self._element(data, at, stack, depth)
            except (NotPkcs12, IndexError):
                at = self._skip_damaged(stack, whole=depth == 0)

    def _element(self, data: bytes, at: int, stack: list[_Open], depth: int) -> int:
        """Read the element at `at`; return where the next one begins."""
        self.elements += 1
        if self.elements > MAX_ELEMENTS or depth + len(stack) > MAX_DEPTH:
            raise TooCostly
        parent = stack[-1]
        tag, size, begin = _header(data, at)
        if parent.end is None and tag == 0 and size == 0:
            self._close(stack, depth)
            return begin
        limit = next(each.end for each in reversed(stack) if each.end is not None)
        if begin + (size or 0) > limit:
            raise NotPkcs12
        before, parent.before = parent.before, tag & ~_CONSTRUCTED
        if tag & _CONSTRUCTED:
            stack.append(_Open(tag, None if size is None else begin + size))
            return begin
        if size is None:
            raise NotPkcs12
        self._primitive(tag, data[begin : begin + size], before, parent, depth + len(stack))
        return begin + size

    def _primitive(self, tag: int, body: bytes, before: int, parent: _Open, depth: int) -> None:
        if tag == _INTEGER and before == _OCTET_STRING:
            self.iterations += int.from_bytes(body, "big")
        elif tag == _OBJECT_ID and body == _SCRYPT:
            raise TooCostly
        elif tag == _OCTET_STRING and parent.tag == _OCTET_STRING | _CONSTRUCTED:
            parent.pieces += body
        elif tag == _OCTET_STRING and body[:1] == bytes([_SEQUENCE]):
            self.documents.append((body, depth))

    def _close(self, stack: list[_Open], depth: int) -> None:
        done = stack.pop()
        if stack and done.tag == stack[-1].tag == _OCTET_STRING | _CONSTRUCTED:
            # Pieces may be in pieces, too.
            stack[-1].pieces += done.pieces
        elif done.pieces[:1] == bytes([_SEQUENCE]):
            self.documents.append((bytes(done.pieces), depth + len(stack)))

    @staticmethod
    def _skip_damaged(stack: list[_Open], *, whole: bool) -> int:
        """Go on behind the innermost element whose end is known: OpenSSL does not look into all of them either."""
        while stack[-1].end is None:
            stack.pop()
        if len(stack) == 1 and whole:
            raise NotPkcs12
        end = stack[-1].end
        assert end is not None, "the loop above"
        return end


def _header(data: bytes, at: int) -> tuple[int, int | None, int]:
    """Return tag, size (None: indefinite) and where the content begins."""
    tag = data[at]
    at += 1
    if tag & _LONG_TAG == _LONG_TAG:
        while data[at] & _LONG_LENGTH:
            at += 1
        at += 1
    size = data[at]
    at += 1
    if size < _LONG_LENGTH:
        return tag, size, at
    if size == _INDEFINITE:
        return tag, None, at
    count = size - _LONG_LENGTH
    if at + count > len(data):
        raise NotPkcs12
    return tag, int.from_bytes(data[at : at + count], "big"), at + count
