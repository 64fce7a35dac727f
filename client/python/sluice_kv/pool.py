"""Keeps an engine's memory registered with the node daemon, whatever becomes of the daemon.

Thread-safe. A thread of its own registers the pool as soon as the daemon is there, and again when
it comes back."""
from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import grpc

from sluice_kv.memory import SharedMemory
from sluice_kv.node import NodeClient, PoolSpec, why

_LOG = logging.getLogger("sluice_kv")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class RegisteredPool:
    """Memory that the daemon knows most of the time."""

    def __init__(self, client: NodeClient, memory: SharedMemory, spec: PoolSpec) -> None:
        """`spec.shm_name` is not used: the memory's own counts, which changes at a fence."""
        self._client, self._memory, self._spec = client, memory, spec
        self._lock = threading.Condition()
        self._id: int | None = None
        self._epoch = 0
        self._closing = False
        self._complained = ""
        self._registering: grpc.Future | None = None
        self._hold: grpc.Call | None = None
        self._thread = threading.Thread(target=self._keep, name="sluice-pool", daemon=True)
        self._thread.start()

    @property
    def current(self) -> tuple[int | None, int]:
        """The pool's id, None while the daemon does not know it, and how often the daemon was cut
        off: what was begun in an earlier epoch does not reach the memory any more."""
        with self._lock:
            return self._id, self._epoch

    def wait(self, timeout_s: float) -> bool:
        """Waits until the daemon knows the pool; False if it does not in time."""
        with self._lock:
            return self._lock.wait_for(lambda: self._id is not None, timeout_s)

    def fence(self) -> None:
        """Cuts a daemon off that does not answer; see SharedMemory.fence."""
        with self._lock:
            self._memory.fence()
            self._epoch += 1
            self._id = None
            hold = self._hold
        if hold is not None:
            hold.cancel()

    def close(self) -> None:
        """Has the daemon forget the pool."""
        with self._lock:
            self._closing = True
            calls = (self._registering, self._hold)
            self._lock.notify_all()
        for call in calls:
            if call is not None:
                call.cancel()
        self._thread.join(timeout=5)

    def _keep(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._closing:
            registered = self._hold_once()
            pause = _FIRST_PAUSE_S if registered else min(2 * pause, _LONGEST_PAUSE_S)
            with self._lock:
                self._lock.wait_for(lambda: self._closing, pause)

    def _hold_once(self) -> bool:
        """Registers the pool and stays until the daemon forgets it; False if it never knew it."""
        with self._lock:
            epoch = self._epoch
            if self._closing:
                return False
            self._registering = self._client.register_pool(
                replace(self._spec, shm_name=self._memory.name))
        try:
            pool_id = int(self._registering.result().pool_id)
            hold = self._client.hold_pool(pool_id)
            next(hold)
        except (CancelledError, grpc.FutureCancelledError):
            return False  # by close
        except (grpc.RpcError, StopIteration) as error:
            self._complain(error)
            return False
        with self._lock:
            if self._closing or epoch != self._epoch:
                hold.cancel()
                return True
            self._id, self._hold = pool_id, hold
            self._lock.notify_all()
        _LOG.info("the node daemon at %s knows the KV cache", self._client.socket)
        with contextlib.suppress(grpc.RpcError):
            for _ in hold:
                pass  # it has no more messages, and lasts as long as the daemon knows the pool
        with self._lock:
            if epoch == self._epoch:
                self._id = None
            self._hold = None
        return True

    def _complain(self, error: Exception) -> None:
        """Once per kind of trouble: a daemon may be away for hours."""
        text = why(error) if isinstance(error, grpc.RpcError) else "the call ended at once"
        if text != self._complained:
            self._complained = text
            _LOG.warning("the node daemon at %s does not take the KV cache (all is computed until "
                         "it does): %s", self._client.socket, text)
