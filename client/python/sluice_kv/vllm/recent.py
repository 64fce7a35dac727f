"""What happened lately to something that has a key.

Used by one thread."""
from __future__ import annotations

import time
from collections import OrderedDict


class RecentKeys:
    """At most `most` keys, each for `seconds` after it was added last."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._since: OrderedDict[bytes, float] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        since = self._since.get(key)
        return since is not None and time.monotonic() - since < self._seconds

    def add(self, key: bytes) -> None:
        self._since[key] = time.monotonic()
        self._since.move_to_end(key)
        while len(self._since) > self._most:
            self._since.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._since.pop(key, None)

    def clear(self) -> None:
        self._since.clear()
