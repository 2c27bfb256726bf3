"""What a token lacks."""

from __future__ import annotations


class Missing(Exception):
    """`reason`: what is missing. `advice`: what to do. Neither shows a credential."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
