"""Look-ups that the scheduler does not wait for.

Used by the scheduler's thread alone; answers arrive on gRPC's threads."""
from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from sluice_kv.identity import adapter_digest
from sluice_kv.node import Identity, NodeClient, why

_LOG = logging.getLogger("sluice_kv")


class Lookup:
    """One question to the daemon: how many tokens of a context are worth loading?"""

    def __init__(self, client: NodeClient, request_id: str, identity: Identity, geometry: Any,
                 profile_id: bytes, tokens: Sequence[int], slo_ms: int, budget_s: float) -> None:
        self._started = time.monotonic()
        self._request_id = request_id
        self._budget_s = budget_s
        self._call = client.query(identity, geometry, profile_id, tokens, slo_ms, budget_s)
        self._answer: int | None = None
        self.ms = 0.0
        self.trouble = ""  # why nothing is loaded, if that is not the store's answer

    def answer(self) -> int | None:
        """Tokens from the start that are worth loading, 0 for any trouble; None while not known,
        but never for longer than the budget."""
        if self._answer is not None:
            return self._answer
        waited = time.monotonic() - self._started
        if not self._call.done() and waited < self._budget_s:
            return None
        self.ms = waited * 1000
        if not self._call.done():
            self._call.cancel()
            self.trouble = self._late()
        elif (error := self._call.exception()) is not None:
            late = isinstance(error, grpc.RpcError) and (
                error.code() == grpc.StatusCode.DEADLINE_EXCEEDED)
            self.trouble = self._late() if late else why(error)
        if self.trouble:
            _LOG.info("request %s is computed: %s", self._request_id, self.trouble)
        self._answer = 0 if self.trouble else int(self._call.result().planned_tokens)
        return self._answer

    def _late(self) -> str:
        return f"no answer to the look-up within lookup_ms, {self._budget_s * 1000:.0f} ms"

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._call.cancel()


class Adapters:
    """Digests of LoRA adapters' weights, computed in the background, once for each."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sluice-adapter")
        self._digests: dict[tuple[str, int], Future[str]] = {}

    def name(self, lora: Any) -> str | None:
        """What an adapter's caches are filed under: its name and the digest of its weights. None
        while that is not known; raises ValueError where it cannot be had."""
        if lora.load_inplace:
            raise ValueError(f"adapter {lora.lora_name} may be replaced while it is served")
        key = (lora.lora_path, lora.lora_int_id)
        future = self._digests.get(key)
        if future is None:
            future = self._digests[key] = self._pool.submit(adapter_digest, lora.lora_path)
        if not future.done():
            return None
        error = future.exception()
        if error is not None:
            raise ValueError(f"adapter {lora.lora_name}: {error}")
        return f"{lora.lora_name[:128]}@{future.result()}"

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
