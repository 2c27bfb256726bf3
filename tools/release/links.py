"""Markdown links that only work beside the sources. The package index shows the description alone."""

from __future__ import annotations

import re

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative_links(markdown: str) -> list[str]:
    """Return the targets of inline links that are no address of a host and no anchor."""
    return [target for target in _LINK.findall(markdown) if "://" not in target and not target.startswith("#")]
