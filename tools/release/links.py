"""Markdown links that only work beside the sources. The package index shows the description alone."""

from __future__ import annotations

import re

# In the text, and the definition of one that the text names by a label.
_LINK = re.compile(r"\]\(([^)\s]+)\)|^ {0,3}\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


def relative_links(markdown: str) -> list[str]:
    """Return the targets of links, inline or by reference, that are no address of a host and no anchor."""
    targets = (inline or defined for inline, defined in _LINK.findall(markdown))
    return [target for target in targets if "://" not in target and not target.startswith("#")]
