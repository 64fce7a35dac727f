"""The connector's half in the engine's scheduler: what to load, what to save, when to stop trying.

Used by the scheduler's thread alone. Nothing here waits."""
from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Any

from sluice_kv.node import Identity, NodeClient, geometry_message
from sluice_kv.vllm.config import Config, ConfigError, RequestSettings
from sluice_kv.vllm.engine import EngineFacts
from sluice_kv.vllm.lookup import Adapters, Lookup
from sluice_kv.vllm.messages import LoadReport, LoadTask, PrefillWork, StepPlan, WorkerReport
from sluice_kv.vllm.recent import RecentKeys
from sluice_kv.vllm.saves import Saves

_LOG = logging.getLogger("sluice_kv")
_MAX_BAD_CHUNKS, _BAD_FOR_S = 1 << 12, 60.0
_FIRST_QUERY_S = 10.0
_MIN_TIMED_TOKENS = 32  # shorter steps say little of what prefill costs
_MAX_LOADS = 3  # of one request: the first and those after preemptions
# Why a chunk that was said to be there could not be loaded, where asking again does not help.
_LASTING_REASONS = frozenset(("damaged", "not_stored", "unsupported"))


@dataclass
class _Context:
    """A request, as far as the connector is concerned."""
    request: Any
    settings: RequestSettings
    identity: Identity | None  # None: not cached, or not known yet
    reason: str = ""  # why it is not cached
    lookup: Lookup | None = None
    asked_at: float = 0.0  # time.monotonic() of the scheduler's first question
    have_tokens: int = 0  # of the engine, when a load was offered last
    loads: int = 0
    loading: bool = False  # what the engine counts as computed is not there yet
    failed: bool = False  # a load fell short: never offered again
    report: LoadReport | None = None
    prompt_saved: bool = False
    saved_tokens: int = 0


class SchedulerSide:
    """Answers the scheduler's questions."""

    def __init__(self, engine: EngineFacts, config: Config, client: NodeClient) -> None:
        self._engine, self._config, self._client = engine, config, client
        self._geometry = geometry_message(engine.geometry)
        self._adapters = Adapters()
        self._contexts: dict[str, _Context] = {}
        self._loads: list[LoadTask] = []
        # Filled at less than the finest lossy level: what is computed from them is not stored.
        self._coarse_blocks: set[int] = set()
        self._bad_chunks = RecentKeys(_MAX_BAD_CHUNKS, _BAD_FOR_S)  # by the hash of the first block
        self._saves = Saves(engine.num_workers, config.save_blocks_share)
        self._manager: Any = None
        _LOG.info("contexts of %s, revision %s, in chunks of %d tokens", engine.identity.model,
                  engine.identity.revision, config.chunk_tokens)

    def bind(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager
        self._saves.bind(kv_cache_manager.block_pool)

    def warm_up(self) -> None:
        """Asks a first question, for that takes longer than look-ups may. Does not wait."""
        tokens = [0] * self._config.chunk_tokens
        self._client.query(self._engine.identity, self._geometry, self._config.profile_id, tokens,
                           self._config.slo_ms, _FIRST_QUERY_S)

    def close(self) -> None:
        self._adapters.close()
        self._client.close()

    # Loads.

    def matched_tokens(self, request: Any, have: int) -> tuple[int | None, bool]:
        """Tokens beyond the `have` that the engine has; None while that is being looked up."""
        context = self._context(request)
        usable = (request.num_tokens - 1) // self._config.chunk_tokens * self._config.chunk_tokens
        if (not self._engine.may_load or not context.settings.load or context.failed
                or context.loads >= _MAX_LOADS or usable <= have):
            return 0, False
        self._identify(context)
        if context.identity is None:
            late = time.monotonic() - context.asked_at > self._config.lookup_ms / 1000
            return (0, False) if context.reason or late else (None, False)
        left_ms = self._left_ms(context)
        if left_ms <= 0:
            return 0, False
        if context.lookup is None:
            context.lookup = Lookup(
                self._client, request.request_id, context.identity, self._geometry,
                self._config.profile_id, request.all_token_ids, left_ms,
                self._config.lookup_ms / 1000)
        stored = context.lookup.answer()
        if stored is None:
            return None, False
        context.have_tokens = have
        count = self._before_bad_chunks(request, min(stored, usable)) - have
        return (count, self._config.load_async) if count > 0 else (0, False)

    def after_allocation(self, request: Any, blocks: Any, count: int) -> None:
        """Blocks for `count` tokens that were offered are there, or 0: nothing to load."""
        if count == 0:
            return
        context = self._contexts[request.request_id]
        assert context.identity is not None
        have = context.have_tokens
        end = have + count
        context.loads += 1
        context.loading = True
        self._loads.append(LoadTask(
            request_id=request.request_id, identity=context.identity,
            tokens=list(request.all_token_ids[:end]),
            blocks=blocks.get_block_ids()[0][:end // self._engine.block_tokens],
            skip_tokens=have, tail_tokens=request.num_tokens - end,
            deadline=request.arrival_time + context.settings.slo_ms / 1000,
            level=context.settings.level))

    def _before_bad_chunks(self, request: Any, tokens: int) -> int:
        """Of the first `tokens` tokens those before the first chunk that could not be loaded
        lately, for this request or another."""
        for start in range(0, tokens, self._config.chunk_tokens):
            key = self._block_key(request, start // self._engine.block_tokens)
            if key is not None and key in self._bad_chunks:
                return start
        return tokens

    def _remember_bad_chunk(self, context: _Context, loaded_tokens: int) -> None:
        chunk = self._config.chunk_tokens
        start = loaded_tokens // chunk * chunk
        key = self._block_key(context.request, start // self._engine.block_tokens)
        if key is not None:
            self._bad_chunks.add(key)

    @staticmethod
    def _block_key(request: Any, index: int) -> bytes | None:
        """The engine's hash of a block, which covers all before it, adapter and salt; None if it
        has made none."""
        hashes = request.block_hashes
        return bytes(hashes[index]) if index < len(hashes) else None

    # Steps.

    def plan_step(self, output: Any) -> StepPlan:
        """What the workers are to do with this step."""
        for request_id, new_tokens in output.num_scheduled_tokens.items():
            context = self._contexts.get(request_id)
            if context is None:
                continue
            start = context.request.num_computed_tokens
            self._mark_computed(context, start, start + new_tokens)
            if not context.prompt_saved and start + new_tokens >= context.request.num_prompt_tokens:
                context.prompt_saved = True
                self._save(context, start + new_tokens)
        plan = StepPlan(loads=self._loads, saves=self._saves.take(), prefill=self._timed(output))
        self._loads = []
        return plan

    def on_report(self, report: WorkerReport) -> None:
        """What the workers have done since the last step."""
        self._saves.on_report(report)
        for request_id, load in report.loads.items():
            if load.coarse:  # of a request that has ended too: others find them in the prefix cache
                self._coarse_blocks.update(load.blocks)
            context = self._contexts.get(request_id)
            if context is None:
                continue
            context.report = load
            context.loading = False
            context.failed |= not load.complete
            if not load.coarse:
                self._coarse_blocks.difference_update(load.blocks)
            if not load.complete and not _LASTING_REASONS.isdisjoint(load.reasons):
                self._remember_bad_chunk(context, load.loaded_tokens)
            if not load.complete and not self._config.load_async:
                self._evict(context, load.loaded_tokens)

    def finished(self, request: Any) -> dict[str, Any] | None:
        """The request is over; what is told to whoever sent it."""
        context = self._contexts.pop(request.request_id, None)
        if context is None:
            return None
        if context.lookup is not None:
            context.lookup.cancel()
        if not context.loading:
            self._save(context, request.num_computed_tokens - request.num_in_flight_tokens)
        return self._tell(context)

    def holds_blocks(self) -> bool:
        """Are there saves that have not read their blocks?"""
        return self._saves.holds_blocks()

    def forget_stored(self) -> None:
        """The store may have been emptied."""
        self._saves.forget_known()

    def _tell(self, context: _Context) -> dict[str, Any] | None:
        lookup, load = context.lookup, context.report
        why_not = context.reason or (lookup.trouble if lookup is not None else "")
        if load is None and lookup is None and not why_not:
            return None
        told: dict[str, Any] = {"loaded_tokens": 0, "level": None,
                                "lookup_ms": lookup.ms if lookup is not None else 0.0}
        if load is not None:
            told |= {"loaded_tokens": max(0, load.loaded_tokens - context.have_tokens),
                     "level": load.worst_level, "load_ms": load.ms, "recompute": load.reasons}
        if why_not:
            told["reason"] = why_not
        return {"sluice": told}

    def _timed(self, output: Any) -> PrefillWork | None:
        """The step's work if it is of one prompt alone."""
        if len(output.num_scheduled_tokens) != 1:
            return None
        ((request_id, new_tokens),) = output.num_scheduled_tokens.items()
        context = self._contexts.get(request_id)
        if context is None or new_tokens < _MIN_TIMED_TOKENS:
            return None
        return PrefillWork(self._engine.identity, new_tokens, context.request.num_computed_tokens)

    # Contexts.

    def _context(self, request: Any) -> _Context:
        context = self._contexts.get(request.request_id)
        if context is None:
            settings = RequestSettings(self._config.slo_ms, self._config.level)
            reason = ""
            try:
                settings = RequestSettings.of(request.kv_transfer_params, self._config)
            except ConfigError as error:
                reason = f"kv_transfer_params: {error}"
            context = _Context(request, settings, identity=None, reason=reason,
                               asked_at=time.monotonic())
            self._contexts[request.request_id] = context
            self._identify(context)
            if context.reason:
                _LOG.warning("request %s is computed and not stored: %s", request.request_id,
                             context.reason)
        context.request = request
        return context

    def _identify(self, context: _Context) -> None:
        """Sets the context's identity, or the reason why it has none; neither while not known."""
        request = context.request
        if context.identity is not None or context.reason:
            return
        if request.mm_features or request.prompt_embeds is not None:
            context.reason = "its prompt is not of tokens alone"
            return
        adapter = ""
        if request.lora_request is not None:
            try:
                name = self._adapters.name(request.lora_request)
            except ValueError as error:
                context.reason = str(error)
                return
            if name is None:
                return
            adapter = name
        salt = request.cache_salt or ""
        if len(salt.encode()) > 256:
            context.reason = "its cache_salt has more than 256 bytes"
            return
        context.identity = replace(self._engine.identity, adapter=adapter, salt=salt)

    @staticmethod
    def _left_ms(context: _Context) -> int:
        """Of the SLO; it runs from the request's arrival."""
        waited_ms = (time.time() - context.request.arrival_time) * 1000
        return int(context.settings.slo_ms - waited_ms)

    # Saves.

    def _save(self, context: _Context, end: int) -> None:
        """Has the full chunks of the first `end` tokens stored, if any is new."""
        request = context.request
        tokens = self._config.chunk_tokens
        end = min(end, request.num_tokens - 1 if request.num_output_tokens else request.num_tokens)
        end = end // tokens * tokens
        loaded = context.report.loaded_tokens if context.report is not None else 0
        if (not self._engine.may_save or not context.settings.save or context.identity is None
                or end <= max(context.saved_tokens, loaded)):
            return
        blocks = self._blocks(context, 0, end)
        if len(blocks) * self._engine.block_tokens < end or self._any_coarse(blocks):
            return
        self._saves.add(request.request_id, context.identity, request.all_token_ids[:end], blocks,
                        self._block_key(request, len(blocks) - 1))
        context.saved_tokens = end

    # Blocks.

    def _blocks(self, context: _Context, begin: int, end: int) -> list[Any]:
        """Those that hold tokens begin .. end - 1."""
        blocks = self._manager.get_blocks(context.request.request_id).blocks[0]
        return list(blocks[begin // self._engine.block_tokens:-(-end // self._engine.block_tokens)])

    def _any_coarse(self, blocks: list[Any]) -> bool:
        return any(block.block_id in self._coarse_blocks for block in blocks)

    def _mark_computed(self, context: _Context, begin: int, end: int) -> None:
        """A step fills these tokens' blocks."""
        if self._coarse_blocks:
            ids = {block.block_id for block in self._blocks(context, begin, end)}
            self._coarse_blocks -= ids

    def _evict(self, context: _Context, valid_tokens: int) -> None:
        """Takes blocks that a load failed to fill out of the engine's prefix cache, where it has
        put them already for loads within a step: another request must not find them there."""
        blocks = self._manager.get_blocks(context.request.request_id).blocks[0]
        bad = blocks[valid_tokens // self._engine.block_tokens:]
        self._manager.evict_blocks({block.block_id for block in bad if not block.is_null})
