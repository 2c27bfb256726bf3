"""One client's connection, as the broker's network threads treat it: one request at a time, in order.

The next request is read when the answer to the one before is sent, so five requests in flight are appended one after
the other; and not before a throttled client's time is over (KIP-219).

Source: SocketServer.Processor (mute, unmute) in Kafka.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Connection:
    """`is_gone`: the client has closed it. Earlier requests are still executed."""

    connection_id: int
    received: deque[bytes] = field(default_factory=deque)
    is_busy: bool = False
    is_throttled: bool = False
    is_gone: bool = False
    is_being_handled: bool = False
    # Of the request that is being handled, or was last.
    request_bytes: int = 0

    def next_frame(self) -> bytes | None:
        if self.is_busy or self.is_throttled or not self.received:
            return None
        self.is_busy = True
        frame = self.received.popleft()
        self.request_bytes = len(frame)
        return frame
