"""The connector's half in each of the engine's workers: moves blocks by way of the node daemon.

The engine's thread calls it; every load and save has a thread while it runs. The daemon writes
into the engine's blocks and reads them by itself: what crosses these threads is outcomes only."""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sluice_kv.node import Identity, LoadResult, NodeClient
from sluice_kv.pool import RegisteredPool
from sluice_kv.vllm.blocks import EngineBlocks, Lent
from sluice_kv.vllm.config import Config
from sluice_kv.vllm.messages import (
    LoadReport,
    LoadTask,
    PrefillWork,
    SaveTask,
    StepPlan,
    WorkerReport,
)

_LOG = logging.getLogger("sluice_kv")
_MAX_LOADS = 64  # at a time; further ones wait, and their SLO runs
_MAX_SAVES = 8


class WorkerSide:
    """Carries out what the scheduler's half has planned."""

    def __init__(self, client: NodeClient, pool: RegisteredPool, blocks: EngineBlocks,
                 config: Config, block_tokens: int, revision: str) -> None:
        """`revision`: of this worker's part of the contexts; tasks name the first worker's."""
        self._client, self._pool, self._blocks, self._config = client, pool, blocks, config
        self._block_tokens, self._revision = block_tokens, revision
        self._load_threads = ThreadPoolExecutor(_MAX_LOADS, thread_name_prefix="sluice-load")
        self._save_threads = ThreadPoolExecutor(_MAX_SAVES, thread_name_prefix="sluice-save")
        self._lock = threading.Condition()
        self._ended: dict[str, LoadReport] = {}  # loads that the engine has not been told of
        self._report = WorkerReport()
        self._bad_blocks: set[int] = set()
        self._fence_wanted = False
        self._stuck: list[Lent] = []  # places that a silent daemon may use until it is cut off
        self._running: dict[str, LoadTask] = {}
        # Blocks that the step's loads filled coarsely or not at all, and those of the step before:
        # the engine schedules a step before it knows how the last one ended.
        self._spoilt: tuple[set[int], set[int]] = (set(), set())
        self._step_began = 0.0

    def close(self) -> None:
        """The engine ends."""
        self._load_threads.shutdown(wait=False, cancel_futures=True)
        self._save_threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()
        self._client.close()

    # The engine's step.

    def begin_step(self) -> None:
        self._step_began = time.monotonic()
        self._spoilt = (set(), self._spoilt[0])

    def start_loads(self, plan: StepPlan) -> None:
        """Begins the loads; if they are synchronous, returns when all have ended."""
        for task in plan.loads:
            with self._lock:
                self._running[task.request_id] = task
            self._load_threads.submit(self._load, task)
        if plan.loads and not self._config.load_async:
            with self._lock:
                self._lock.wait_for(lambda: not self._running)
                self._fence_if_wanted()
                self._spoilt[0].update(self._bad_blocks, *(
                    load.blocks for load in self._ended.values() if load.coarse))

    def end_step(self, plan: StepPlan) -> None:
        """The step's blocks are written: begins the saves, tells how long the step took."""
        if plan.prefill is not None:
            self._report_prefill(plan.prefill, time.monotonic() - self._step_began)
        spoilt = self._spoilt[0] | self._spoilt[1]
        for task in plan.saves:
            # The scheduler's half could not know when it planned the save.
            if spoilt.intersection(task.blocks):
                self._save_ended(task, released=True, stored=False)
            else:
                self._save_threads.submit(self._save, task, self._blocks.mark())

    def ended_loads(self) -> set[str]:
        """Requests whose loads have ended since the last call, well or not."""
        with self._lock:
            self._fence_if_wanted()
            ended = set(self._ended)
            self._report.loads.update(self._ended)
            self._ended = {}
        return ended

    def bad_blocks(self) -> set[int]:
        """Blocks of ended loads that were not filled."""
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def report(self) -> WorkerReport | None:
        """For the scheduler's half."""
        with self._lock:
            self._fence_if_wanted()
            report, self._report = self._report, WorkerReport()
        return report if report.loads or report.released or report.stored else None

    def _own(self, identity: Identity) -> Identity:
        return replace(identity, revision=self._revision)

    # Loads.

    def _load(self, task: LoadTask) -> None:
        pool_id, epoch = self._pool.current
        slo_ms = int((task.deadline - time.time()) * 1000)
        try:
            result = self._load_now(task, pool_id, slo_ms)
        except Exception:  # a bug must not leave the request waiting for ever
            _LOG.exception("load %s: a fault of the connector", task.request_id)
            result = LoadResult(reasons={"connector_error": 1})
        with self._lock:
            cut_off = epoch != self._pool.current[1]
            if cut_off and result.confirmed:
                result.levels = []  # what came after the fence is not in the engine's memory
                result.reasons["node_cut_off"] = 1
            self._fence_wanted |= not result.confirmed and not cut_off
            self._end_load(task, result)

    def _load_now(self, task: LoadTask, pool_id: int | None, slo_ms: int) -> LoadResult:
        if pool_id is None:
            return LoadResult(reasons={"node_unavailable": 1})
        if slo_ms <= 0:
            return LoadResult(reasons={"late": 1})
        skip_blocks = task.skip_tokens // self._block_tokens
        lent = self._blocks.lend_to_fill(task.blocks[skip_blocks:])
        if lent is None:
            return LoadResult(reasons={"no_slots": 1})
        result = LoadResult()
        try:
            result = self._client.load(
                self._own(task.identity), pool_id, task.tokens, [0] * skip_blocks + lent.ids,
                slo_ms, skip_tokens=task.skip_tokens, tail_tokens=task.tail_tokens,
                level=task.level, request_id=task.request_id)
            if result.confirmed:
                filled = self._loaded_tokens(task, result) // self._block_tokens
                lent.deliver(filled - skip_blocks)
        finally:
            self._end_lending(lent, result.confirmed)
        return result

    def _end_lending(self, lent: Lent, confirmed: bool) -> None:
        """The daemon uses the places no more, or nobody knows: then until it is cut off."""
        if confirmed:
            lent.give_back()
            return
        with self._lock:
            self._stuck.append(lent)

    @staticmethod
    def _loaded_tokens(task: LoadTask, result: LoadResult) -> int:
        """Tokens from the start that the engine has after the load."""
        chunk = task.identity.chunk_tokens
        chunks = task.skip_tokens // chunk + (result.prefix_chunks if result.confirmed else 0)
        return max(task.skip_tokens, chunks * chunk)

    def _end_load(self, task: LoadTask, result: LoadResult) -> None:
        """Under the lock."""
        loaded = self._loaded_tokens(task, result)
        prefix = result.prefix_chunks if result.confirmed else 0
        levels = [level for level in result.levels[:prefix] if level is not None]
        filled = slice(task.skip_tokens // self._block_tokens, loaded // self._block_tokens)
        report = LoadReport(loaded_tokens=loaded, worst_level=min(levels, default=None),
                            blocks=task.blocks[filled],
                            coarse=any(result.is_coarse(level) for level in levels),
                            complete=loaded >= len(task.tokens), ms=result.ms,
                            reasons=result.reasons)
        self._bad_blocks.update(task.blocks[loaded // self._block_tokens:])
        self._ended[task.request_id] = report
        del self._running[task.request_id]
        self._lock.notify_all()
        at_level = f" at level {report.worst_level} or better" if levels else ""
        _LOG.info("load %s: %d of %d tokens%s in %.0f ms, %d bytes%s", task.request_id,
                  loaded - task.skip_tokens, len(task.tokens) - task.skip_tokens, at_level,
                  result.ms, result.bytes,
                  "".join(f", {reason}: {count}" for reason, count in result.reasons.items()))

    def _fence_if_wanted(self) -> None:
        """Under the lock: cuts a daemon off that was silent beyond a load's or a save's limit,
        before the engine hears that its blocks are its own again."""
        wanted, self._fence_wanted = self._fence_wanted, False
        if wanted:
            _LOG.error("the node daemon at %s is silent: it is cut off from the KV cache",
                       self._client.socket)
            self._pool.fence()
            for lent in self._stuck:
                lent.give_back()
            self._stuck = []

    # Saves.

    def _save(self, task: SaveTask, written: Any) -> None:
        released = threading.Event()

        def release() -> None:
            if not released.is_set():
                released.set()
                self._save_ended(task, released=True)

        stored = False
        try:
            stored = self._save_now(task, written, release)
        except Exception:
            _LOG.exception("save %s: a fault of the connector", task.request_id)
        release()
        self._save_ended(task, stored=stored)

    def _save_now(self, task: SaveTask, written: Any, release: Callable[[], None]) -> bool:
        pool_id, epoch = self._pool.current
        lent = None if pool_id is None else self._blocks.lend_to_read(task.blocks, written)
        if lent is None or pool_id is None:
            return False
        if lent.detached:
            release()
        copied = threading.Event()

        def on_copied() -> None:
            copied.set()
            lent.give_back()
            release()

        silent = False
        try:
            result = self._client.save(
                self._own(task.identity), pool_id, task.tokens, lent.ids,
                lossless=self._config.save_lossless, request_id=task.request_id,
                timeout_s=self._config.save_timeout_s, on_copied=on_copied)
            silent = not copied.is_set()
        finally:
            if not copied.is_set():
                self._end_lending(lent, confirmed=not silent)
        if silent:
            with self._lock:
                self._fence_wanted |= epoch == self._pool.current[1]
        if not result.stored:
            _LOG.warning("save %s failed: %s", task.request_id, result.message)
        return result.stored

    def _save_ended(self, task: SaveTask, released: bool = False,
                    stored: bool | None = None) -> None:
        with self._lock:
            if released:
                self._report.released[task.job] = 1
            if stored is not None:
                self._report.stored[task.job] = stored

    # Costs.

    def _report_prefill(self, work: PrefillWork, seconds: float) -> None:
        self._client.report_prefill(work.identity,
                                    [(work.new_tokens, work.context_tokens, seconds * 1000)])

