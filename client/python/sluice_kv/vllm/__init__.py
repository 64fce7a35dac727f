"""A KV connector for vLLM: `--kv-transfer-config` with "kv_connector": "SluiceConnector",
"kv_connector_module_path": "sluice_kv.vllm", "kv_load_failure_policy": "recompute".

vLLM makes one of role SCHEDULER in the engine's core and one of role WORKER in each worker; each
has the half that its role needs."""
from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.platforms import current_platform

from sluice_kv.node import NodeClient
from sluice_kv.vllm.config import Config, ConfigError
from sluice_kv.vllm.engine import EngineFacts, check_engine
from sluice_kv.vllm.messages import StepPlan
from sluice_kv.vllm.registration import KvMemory, make_worker
from sluice_kv.vllm.scheduler import SchedulerSide
from sluice_kv.vllm.worker import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

# The package's log goes where the engine's goes.
_LOG = logging.getLogger("sluice_kv")
if not _LOG.handlers:
    _LOG.handlers = list(logging.getLogger("vllm").handlers)
    _LOG.setLevel(logging.getLogger("vllm").level)
    _LOG.propagate = False

__all__ = ["Config", "ConfigError", "SluiceConnector"]


class SluiceConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Loads contexts from a Sluice store into the engine's blocks, and stores them from there."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole,
                 kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._config = Config.parse(self._kv_transfer_config.kv_connector_extra_config or {})
        check_engine(vllm_config, self._config)
        self._memory: KvMemory | None = None
        self._worker: WorkerSide | None = None
        self._scheduler: SchedulerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                EngineFacts.of(vllm_config, kv_cache_config, self._config), self._config,
                NodeClient(self._config.socket))
            self._scheduler.warm_up()
        else:
            self._memory = KvMemory(self._config)

    @property
    def requires_kv_delivery(self) -> bool:
        """A save that is lost is a later miss, no more."""
        return False

    def shutdown(self) -> None:
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()
        if self._memory is not None:
            self._memory.close()

    # Worker.

    def get_mem_pool_context(self) -> AbstractContextManager[Any] | None:
        on_cpu = current_platform.is_cpu() and not self._config.staging
        return self._memory if on_cpu else None

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        assert self._memory is not None
        self._worker = make_worker(self._vllm_config, self._kv_cache_config, self._config,
                                   self._memory, kv_caches)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._side().begin_step()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._side().start_loads(self._plan())

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A synchronous load has ended before the step."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any,
                      **kwargs: Any) -> None:
        """Saves are of whole chunks, after the step."""

    def wait_for_save(self) -> None:
        self._side().end_step(self._plan())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        ended = self._side().ended_loads()
        return None, ended if self._config.load_async else None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._side().bad_blocks()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return self._side().report()

    # Scheduler.

    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._planner().bind(kv_cache_manager)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int
                                   ) -> tuple[int | None, bool]:
        return self._planner().matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks,
                                 num_external_tokens: int) -> None:
        self._planner().after_allocation(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return self._planner().plan_step(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        if connector_output.kv_connector_worker_meta is not None:
            self._planner().on_report(connector_output.kv_connector_worker_meta)

    def request_finished(self, request: Request, block_ids: list[int]
                         ) -> tuple[bool, dict[str, Any] | None]:
        return False, self._planner().finished(request)

    def has_pending_push_work(self) -> bool:
        """Has the engine go on stepping while blocks are held for saves, and so let go of them."""
        return self._planner().holds_blocks()

    def reset_cache(self) -> bool | None:
        self._planner().forget_stored()
        return True

    def _plan(self) -> StepPlan:
        plan = self._get_connector_metadata()
        assert isinstance(plan, StepPlan)
        return plan

    def _side(self) -> WorkerSide:
        assert self._worker is not None
        return self._worker

    def _planner(self) -> SchedulerSide:
        assert self._scheduler is not None
        return self._scheduler
