"""The node daemon as a serving engine in Python sees it: queries, loads, saves.

Thread-safe. Loads and saves do not raise for a daemon that is away: a load says of every chunk why
it must be recomputed, a save that it failed. Queries and registrations are futures. What a Load or
Save call does with the engine's blocks is over when it returns or raises, unless it says
`confirmed=False`."""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from sluice_kv import wire
from sluice_kv.geometry import Geometry
from sluice_kv.layout import PlaneLayout

LOSSLESS = 255
MAX_LEVEL = 7  # of lossy levels
MAX_REQUEST_ID = 64  # characters
_LOG = logging.getLogger("sluice_kv")

_CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
]
_REASONS = wire.enum_names("RecomputeReason")
_SAVE_STATES = wire.enum_names("SaveState")


@dataclass(frozen=True)
class Identity:
    """Everything beside geometry and profile that makes KV caches interchangeable."""
    model: str
    revision: str = ""
    adapter: str = ""
    tenant: str = ""
    salt: str = ""
    chunk_tokens: int = 256

    def message(self) -> Any:
        return wire.message("ModelIdentity")(
            model=self.model, revision=self.revision, adapter=self.adapter, tenant=self.tenant,
            salt=self.salt, chunk_tokens=self.chunk_tokens)


@dataclass(frozen=True)
class PoolSpec:
    """Memory that an engine shares: `shm_name` with its slash, and what lies where."""
    shm_name: str
    pool_bytes: int
    num_blocks: int
    block_tokens: int
    geometry: Geometry
    layouts: tuple[PlaneLayout, ...]
    profile_id: bytes = b""


@dataclass
class LoadResult:
    """What became of a load. `levels` has an entry per chunk that was not skipped."""
    levels: list[int | None] = field(default_factory=list)  # None: to be recomputed
    reasons: dict[str, int] = field(default_factory=dict)  # why, and of how many chunks
    num_levels: int = 0  # lossy ones of the profile; 0: not known
    bytes: int = 0
    ms: float = 0
    confirmed: bool = True  # False: the daemon may still write into the blocks

    @property
    def prefix_chunks(self) -> int:
        """Chunks from the first one on that are loaded without a gap."""
        return next((i for i, level in enumerate(self.levels) if level is None), len(self.levels))

    def is_coarse(self, level: int) -> bool:
        """Is there, or may there be, a finer lossy level?"""
        return level != LOSSLESS and level != self.num_levels - 1


@dataclass
class SaveResult:
    """How a save ended."""
    stored: bool
    stored_chunks: int = 0
    existing_chunks: int = 0
    message: str = ""


def geometry_message(geometry: Geometry) -> Any:
    """As the wire has it."""
    message = wire.message("Geometry")()
    for plane in geometry.planes:
        message.planes.add(
            kind=plane.kind, model_layer=plane.model_layer, num_heads=plane.num_heads,
            head_dim=plane.head_dim, element_type=plane.element_type,
            rotary_table=0 if plane.rotary_table is None else plane.rotary_table + 1)
    for table in geometry.rotary_tables:
        message.rotary_tables.add(layout=table.layout, first_dim=table.first_dim,
                                  inverse_frequencies=table.inverse_frequencies)
    return message


def why(error: grpc.RpcError) -> str:
    """What went wrong, in words for a log."""
    code = error.code() if hasattr(error, "code") else None
    detail = error.details() if hasattr(error, "details") else str(error)
    return f"{code.name if code else 'error'}: {detail}"


class NodeClient:
    """One daemon. Connects when it is first needed, and again whenever it comes back."""

    def __init__(self, socket: str) -> None:
        path = socket.removeprefix("unix:")
        self.socket = path
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_CHANNEL_OPTIONS)
        self._stub = wire.Stub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def query(self, identity: Identity, geometry: Any, profile_id: bytes, tokens: Sequence[int],
              slo_ms: int, timeout_s: float) -> grpc.Future:
        """Asks how much of a context is stored; the future's result is a QueryResponse."""
        request = wire.message("QueryRequest")(
            identity=identity.message(), geometry=geometry, profile_id=profile_id,
            token_ids=tokens, slo_ms=slo_ms, timeout_ms=max(1, round(timeout_s * 1000)))
        return self._stub.Query.future(request, timeout=timeout_s)

    def register_pool(self, pool: PoolSpec) -> grpc.Future:
        """Makes a pool known; the future's result has its pool_id. Without a limit of its own: a
        daemon that wakes up takes the call, and would keep a pool that nobody waits for."""
        request = wire.message("RegisterPoolRequest")(
            shm_name=pool.shm_name, pool_bytes=pool.pool_bytes, num_blocks=pool.num_blocks,
            block_tokens=pool.block_tokens, geometry=geometry_message(pool.geometry),
            layouts=[layout.message() for layout in pool.layouts], profile_id=pool.profile_id)
        return self._stub.RegisterPool.future(request)

    def hold_pool(self, pool_id: int) -> Any:
        """A stream that lasts as long as the daemon knows the pool, and the pool as long as it."""
        return self._stub.HoldPool(wire.message("HoldPoolRequest")(pool_id=pool_id))

    def report_prefill(self, identity: Identity, timings: Sequence[tuple[int, int, float]]) -> None:
        """Tells how long prefills took: (new tokens, tokens before them, ms). Does not wait."""
        request = wire.message("ReportPrefillRequest")(identity=identity.message())
        for new_tokens, context_tokens, ms in timings:
            request.timings.add(new_tokens=new_tokens, context_tokens=context_tokens, ms=ms)
        self._stub.ReportPrefill.future(request, timeout=1.0)

    def load(self, identity: Identity, pool_id: int, tokens: Sequence[int], blocks: Sequence[int],
             slo_ms: int, *, skip_tokens: int = 0, tail_tokens: int = 0, level: int | None = None,
             request_id: str = "", grace_s: float = 2.0) -> LoadResult:
        """Loads what is stored of a context into blocks, before `tail_tokens` that are computed in
        any case; returns when all is known, at the latest `grace_s` after the SLO, and then with
        confirmed=False."""
        started = time.monotonic()
        request = wire.message("LoadRequest")(
            identity=identity.message(), pool_id=pool_id, token_ids=tokens, block_ids=blocks,
            slo_ms=slo_ms, skip_tokens=skip_tokens, tail_tokens=tail_tokens,
            request_id=request_id[:MAX_REQUEST_ID],
            recompute=wire.enum_value("RecomputeCapability", "suffix"), exact_level=level)
        first_chunk = skip_tokens // identity.chunk_tokens
        num_chunks = len(tokens) // identity.chunk_tokens - first_chunk
        result = LoadResult(levels=[None] * num_chunks)
        call = self._stub.Load(request)

        def take(event: Any) -> None:
            for outcome in event.chunks.outcomes:
                reason = _REASONS.get(outcome.reason, "unknown")
                if reason == "none":
                    result.levels[outcome.chunk_index - first_chunk] = outcome.level
                else:
                    result.reasons[reason] = result.reasons.get(reason, 0) + 1
            if event.HasField("summary"):
                result.bytes = event.summary.bytes
                result.num_levels = event.summary.num_levels

        error = _follow(call, take, slo_ms / 1000 + grace_s)
        result.ms = (time.monotonic() - started) * 1000
        missing = num_chunks - sum(level is not None for level in result.levels)
        unexplained = missing - sum(result.reasons.values())
        if error is not None:
            result.confirmed = error is not _STILL_RUNNING
            result.reasons[_error_name(error)] = unexplained
            if error is not _STILL_RUNNING:
                _LOG.warning("load %s: %s", request_id, why(error))
        return result

    def save(self, identity: Identity, pool_id: int, tokens: Sequence[int], blocks: Sequence[int],
             *, lossless: bool, request_id: str = "", timeout_s: float,
             on_copied: Callable[[], None]) -> SaveResult:
        """Stores the full chunks of a context; returns at the end, or after `timeout_s`.
        `on_copied` is called once when the blocks are not read any more; not before a return
        because of the time limit."""
        request = wire.message("SaveRequest")(
            identity=identity.message(), pool_id=pool_id, token_ids=tokens, block_ids=blocks,
            lossless=lossless, request_id=request_id[:MAX_REQUEST_ID])
        result = SaveResult(stored=False)
        copied = threading.Event()

        def set_copied() -> None:
            if not copied.is_set():
                copied.set()
                on_copied()

        def take(event: Any) -> None:
            state = _SAVE_STATES.get(event.state, "")
            if state == "copied":
                set_copied()
            elif state in ("stored", "failed"):
                result.stored = state == "stored"
                result.stored_chunks = event.stored_chunks
                result.existing_chunks = event.existing_chunks
                result.message = event.message

        error = _follow(self._stub.Save(request), take, timeout_s)
        if error is _STILL_RUNNING:
            result.message = f"no end within {timeout_s:.0f} s"
            return result
        set_copied()
        if error is not None:
            result.message = why(error)
        return result


class _StillRunning(grpc.RpcError):
    """The call went on past its limit."""


_STILL_RUNNING = _StillRunning()


def _error_name(error: grpc.RpcError) -> str:
    if error is _STILL_RUNNING:
        return "node_silent"
    refused = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return "node_refused" if error.code() in refused else "node_unavailable"


def _follow(call: Any, take: Callable[[Any], None], limit_s: float) -> grpc.RpcError | None:
    """Takes a stream's messages until its end; what it ended with if not well, or _STILL_RUNNING.
    What `take` raises is raised here once the call is over, and only logged if that is not known.

    A call is never cancelled before its time: a cancelled call ends here at once, but nobody knows
    when the daemon has let go of the blocks."""
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        call.cancel()

    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    timer.start()
    ended_with: grpc.RpcError | None = None
    fault: Exception | None = None
    try:
        for event in call:
            try:
                take(event)
            except Exception as raised:
                fault = fault or raised
    except grpc.RpcError as error:
        ended_with = _STILL_RUNNING if stopped.is_set() else error
    finally:
        timer.cancel()
    if fault is not None:
        if ended_with is not _STILL_RUNNING:
            raise fault
        _LOG.error("a message of the node daemon could not be taken", exc_info=fault)
    return ended_with

