"""The connector's half in each of the engine's workers: moves blocks by way of the node daemon.

The engine's thread calls it; every load and save has a thread while it runs. The daemon writes
into the engine's blocks and reads them by itself: what crosses these threads is outcomes only."""
from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from sluice_kv.node import LoadResult, NodeClient
from sluice_kv.pool import RegisteredPool
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

    def __init__(self, client: NodeClient, pool: RegisteredPool, config: Config,
                 block_tokens: int) -> None:
        self._client, self._pool, self._config = client, pool, config
        self._block_tokens = block_tokens
        self._load_threads = ThreadPoolExecutor(_MAX_LOADS, thread_name_prefix="sluice-load")
        self._save_threads = ThreadPoolExecutor(_MAX_SAVES, thread_name_prefix="sluice-save")
        self._lock = threading.Condition()
        self._ended: dict[str, LoadReport] = {}  # loads that the engine has not been told of
        self._report = WorkerReport()
        self._bad_blocks: set[int] = set()
        self._fence_wanted = False
        self._running: dict[str, LoadTask] = {}
        self._step_bad_blocks: set[int] = set()  # of the step's own loads
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
        self._step_bad_blocks = set()

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
                self._step_bad_blocks = set(self._bad_blocks)

    def end_step(self, plan: StepPlan) -> None:
        """The step's blocks are written: begins the saves, tells how long the step took."""
        if plan.prefill is not None:
            self._report_prefill(plan.prefill, time.monotonic() - self._step_began)
        for task in plan.saves:
            # What was computed in this step upon blocks that a load did not fill is worthless.
            if self._step_bad_blocks:
                self._save_ended(task, released=True, stored=False)
            else:
                self._save_threads.submit(self._save, task)

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

    # Loads.

    def _load(self, task: LoadTask) -> None:
        pool_id, epoch = self._pool.current
        slo_ms = int((task.deadline - time.time()) * 1000)
        try:
            result = self._load_now(task, pool_id, slo_ms)
        except Exception:  # a bug must not leave the request waiting for ever
            _LOG.exception("load %s", task.request_id)
            result = LoadResult(reasons={"connector_error": 1}, confirmed=False)
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
        return self._client.load(task.identity, pool_id, task.tokens, task.blocks, slo_ms,
                                 skip_tokens=task.skip_tokens, tail_tokens=task.tail_tokens,
                                 level=task.level, request_id=task.request_id)

    def _end_load(self, task: LoadTask, result: LoadResult) -> None:
        """Under the lock."""
        chunk = task.identity.chunk_tokens
        first = task.skip_tokens // chunk
        prefix = result.prefix_chunks if result.confirmed else 0
        loaded = max(task.skip_tokens, (first + prefix) * chunk) if prefix else task.skip_tokens
        levels = [level for level in result.levels[:prefix] if level is not None]
        report = LoadReport(loaded_tokens=loaded, worst_level=min(levels, default=None),
                            coarse=any(result.is_coarse(level) for level in levels),
                            complete=loaded >= len(task.tokens), ms=result.ms,
                            reasons=result.reasons)
        self._bad_blocks.update(task.blocks[loaded // self._block_tokens:])
        self._ended[task.request_id] = report
        del self._running[task.request_id]
        self._lock.notify_all()
        _LOG.info("load %s: %d of %d tokens at level %s or better in %.0f ms, %d bytes%s",
                  task.request_id, loaded - task.skip_tokens, len(task.tokens) - task.skip_tokens,
                  report.worst_level, result.ms, result.bytes,
                  "".join(f", {reason}: {count}" for reason, count in result.reasons.items()))

    def _fence_if_wanted(self) -> None:
        """Under the lock: cuts a daemon off that was silent beyond a load's or a save's limit,
        before the engine hears that its blocks are its own again."""
        wanted, self._fence_wanted = self._fence_wanted, False
        if wanted:
            _LOG.error("the node daemon at %s is silent: it is cut off from the KV cache",
                       self._client.socket)
            self._pool.fence()

    # Saves.

    def _save(self, task: SaveTask) -> None:
        pool_id, epoch = self._pool.current
        released = threading.Event()

        def release() -> None:
            released.set()
            self._save_ended(task, released=True)

        stored = False
        try:
            if pool_id is not None:
                result = self._client.save(
                    task.identity, pool_id, task.tokens, task.blocks,
                    lossless=self._config.save_lossless, request_id=task.request_id,
                    timeout_s=self._config.save_timeout_s, on_copied=release)
                stored = result.stored
                if not stored:
                    _LOG.info("save %s: %s", task.request_id, result.message)
        except Exception:
            _LOG.exception("save %s", task.request_id)
        if not released.is_set():
            if pool_id is not None:
                with self._lock:
                    self._fence_wanted |= epoch == self._pool.current[1]
            self._save_ended(task, released=True)
        self._save_ended(task, stored=stored)

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

