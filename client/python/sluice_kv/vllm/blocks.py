"""The engine's blocks as the node daemon sees them: themselves, or slots that they are copied to.

Thread-safe. An engine on a CPU has its KV cache in shared memory, and the daemon works on its
blocks. One on a device keeps it there: blocks travel through slots in shared memory."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Lent(Protocol):
    """Places that the daemon may write to or read from until they are given back."""
    ids: list[int]  # as the daemon knows them, one per block
    detached: bool  # the engine may have its blocks back at once

    def deliver(self, count: int) -> None:
        """The first `count` have been filled: the engine's blocks get what is in them."""

    def give_back(self) -> None:
        """Nobody uses the places any more."""


class EngineBlocks(Protocol):
    """A worker's blocks."""

    def lend_to_fill(self, blocks: Sequence[int]) -> Lent | None:
        """Places for blocks that the daemon is to fill; None if there is no room now."""

    def lend_to_read(self, blocks: Sequence[int], written: Any) -> Lent | None:
        """Places that hold what is in the blocks once `written` (see `mark`) has happened."""

    def mark(self) -> Any:
        """The moment when all that the engine has been told to compute by now is written."""


class _Same:
    """Blocks themselves."""
    detached = False

    def __init__(self, blocks: Sequence[int]) -> None:
        self.ids = list(blocks)

    def deliver(self, count: int) -> None:
        pass

    def give_back(self) -> None:
        pass


class DirectBlocks:
    """Blocks that the daemon reaches by itself."""

    def lend_to_fill(self, blocks: Sequence[int]) -> Lent | None:
        return _Same(blocks)

    def lend_to_read(self, blocks: Sequence[int], written: Any) -> Lent | None:
        return _Same(blocks)

    def mark(self) -> Any:
        return None  # an engine on a CPU has written when it says so


class StagedBlocks:
    """Blocks of tensors anywhere, [blocks, ...] for each layer, behind tensors of slots in shared
    memory with the same shape of a block."""

    def __init__(self, layers: Sequence[torch.Tensor], slots: Sequence[torch.Tensor]) -> None:
        self._layers, self._slots = list(layers), list(slots)
        self._device = layers[0].device
        self._lock = threading.Lock()
        self._free = list(range(slots[0].shape[0]))
        # Copies of their own stream neither wait for the engine's work nor hold it up.
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None

    def lend_to_fill(self, blocks: Sequence[int]) -> Lent | None:
        return self._take(blocks)

    def lend_to_read(self, blocks: Sequence[int], written: Any) -> Lent | None:
        lent = self._take(blocks)
        if lent is not None:
            with self._copying(written):
                for layer, slots in zip(self._layers, self._slots):
                    slots[lent.ids] = layer[lent.blocks].to("cpu")
        return lent

    def mark(self) -> Any:
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def fill(self, slot_ids: Sequence[int], blocks: Sequence[int]) -> None:
        """Copies slots to blocks; they are there when it returns."""
        with self._copying(None):
            for layer, slots in zip(self._layers, self._slots):
                layer[blocks] = slots[slot_ids].to(self._device)

    def free(self, slot_ids: Sequence[int]) -> None:
        with self._lock:
            self._free += slot_ids

    def _take(self, blocks: Sequence[int]) -> "_Slots | None":
        with self._lock:
            if len(blocks) > len(self._free):
                return None
            ids = [self._free.pop() for _ in blocks]
        return _Slots(self, ids, list(blocks))

    @contextlib.contextmanager
    def _copying(self, written: Any) -> Any:
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            if written is not None:
                self._stream.wait_event(written)
            yield
        self._stream.synchronize()


class _Slots:
    """Slots for blocks."""
    detached = True

    def __init__(self, owner: StagedBlocks, ids: list[int], blocks: list[int]) -> None:
        self._owner = owner
        self.ids, self.blocks = ids, blocks

    def deliver(self, count: int) -> None:
        if count > 0:
            self._owner.fill(self.ids[:count], self.blocks[:count])

    def give_back(self) -> None:
        ids, self.ids = self.ids, []
        self._owner.free(ids)
