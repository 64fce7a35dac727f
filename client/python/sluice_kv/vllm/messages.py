"""What the connector's two halves tell each other with every step of the engine."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from sluice_kv.node import Identity


@dataclass
class LoadTask:
    """Blocks of a request to be filled: those behind its first `skip_tokens` tokens."""
    request_id: str
    identity: Identity
    tokens: list[int]
    blocks: list[int]
    skip_tokens: int
    tail_tokens: int  # of the prompt, behind these
    deadline: float  # time.time() of the SLO
    level: int | None


@dataclass
class SaveTask:
    """Blocks of full chunks to be stored once the step has run."""
    job: int
    request_id: str
    identity: Identity
    tokens: list[int]
    blocks: list[int]


@dataclass(frozen=True)
class PrefillWork:
    """A step that does nothing but compute tokens of one prompt, worth being timed."""
    identity: Identity
    new_tokens: int
    context_tokens: int


@dataclass
class StepPlan(KVConnectorMetadata):
    """From the scheduler to the workers."""
    loads: list[LoadTask] = field(default_factory=list)
    saves: list[SaveTask] = field(default_factory=list)
    prefill: PrefillWork | None = None


@dataclass
class LoadReport:
    """How a load ended on the worst of the workers."""
    loaded_tokens: int  # from the start of the context, without a gap
    worst_level: int | None  # of the chunks that count; None without any
    blocks: list[int]  # that it filled
    coarse: bool  # some of these are below the finest lossy level
    complete: bool
    ms: float
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass
class WorkerReport(KVConnectorWorkerMetadata):
    """From the workers to the scheduler."""
    loads: dict[str, LoadReport] = field(default_factory=dict)  # by request
    released: dict[int, int] = field(default_factory=dict)  # job: workers that do not read any more
    stored: dict[int, bool] = field(default_factory=dict)  # job: whether all of it is stored

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "WorkerReport":
        assert isinstance(other, WorkerReport)
        merged = WorkerReport(dict(self.loads), dict(self.released), dict(self.stored))
        for request_id, report in other.loads.items():
            mine = merged.loads.setdefault(request_id, report)
            worse = min(mine, report, key=lambda load: load.loaded_tokens)
            merged.loads[request_id] = replace(worse, coarse=mine.coarse or report.coarse)
        for job, count in other.released.items():
            merged.released[job] = merged.released.get(job, 0) + count
        for job, stored in other.stored.items():
            merged.stored[job] = merged.stored.get(job, True) and stored
        return merged
