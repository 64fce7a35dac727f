"""Which chunks are to be stored, and the blocks that stay put until they have been read.

Used by the scheduler's thread alone. A block that a save reads is held by a reference of its own in
the engine's block pool: whatever becomes of the request (end, preemption, abort), the block is not
given to another one before the daemon has copied it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice_kv.node import Identity
from sluice_kv.vllm.messages import SaveTask, WorkerReport
from sluice_kv.vllm.recent import RecentKeys

_MAX_KNOWN = 1 << 16  # contexts that are remembered as stored
_KNOWN_FOR_S = 600.0  # after that the server may have dropped them


class Saves:
    """The saves of one engine."""

    def __init__(self, num_workers: int, blocks_share: float) -> None:
        self._num_workers = num_workers
        self._blocks_share = blocks_share
        self._block_pool: Any = None
        self._held: dict[int, list[Any]] = {}  # blocks by job
        self._released: dict[int, int] = {}  # job: workers that are done with its blocks
        self._keys: dict[int, bytes | None] = {}  # job: what it stores
        self._known = RecentKeys(_MAX_KNOWN, _KNOWN_FOR_S)  # stored
        self._queued: list[SaveTask] = []
        self._last_job = 0
        self.dropped = 0  # because too many blocks were held

    def bind(self, block_pool: Any) -> None:
        """The engine's block pool, before the first save."""
        self._block_pool = block_pool

    def add(self, request_id: str, identity: Identity, tokens: Sequence[int],
            blocks: Sequence[Any], key: bytes | None) -> bool:
        """Has these full chunks stored after the next step; `key` names them if anything does.
        False if it is not needed or not possible now."""
        if key is not None and key in self._known:
            return False
        held = sum(len(blocks) for blocks in self._held.values())
        most = int(self._blocks_share * self._block_pool.num_gpu_blocks)
        if held + len(blocks) > most or any(block.is_null for block in blocks):
            self.dropped += 1
            return False
        self._block_pool.touch(blocks)
        self._last_job += 1
        self._held[self._last_job] = list(blocks)
        self._keys[self._last_job] = key
        if key is not None:
            self._known.add(key)  # not twice at a time either
        self._queued.append(SaveTask(self._last_job, request_id, identity, list(tokens),
                                     [block.block_id for block in blocks]))
        return True

    def take(self) -> list[SaveTask]:
        """What the workers are to begin after this step."""
        tasks, self._queued = self._queued, []
        return tasks

    def on_report(self, report: WorkerReport) -> None:
        """Lets go of blocks that all workers have read."""
        for job, count in report.released.items():
            self._released[job] = self._released.get(job, 0) + count
            if self._released[job] >= self._num_workers and job in self._held:
                # As the engine frees a request: the end of the context is evicted first.
                self._block_pool.free_blocks(reversed(self._held.pop(job)))
                del self._released[job]
        for job, stored in report.stored.items():
            key = self._keys.pop(job, None)
            if key is not None and not stored:
                self._known.discard(key)

    def holds_blocks(self) -> bool:
        """Are there blocks that have not been read?"""
        return bool(self._held)

    def forget_known(self) -> None:
        """Stored contexts may be gone."""
        self._known.clear()
