"""An engine that tests drive: vLLM in one process, told by lines of JSON what to do.

    engine.py '{"model": ..., other arguments of vllm.LLM}'

Every line of standard input is a command, every line of its answers is prefixed with `ENGINE `, for
libraries write to standard output too:
    {"generate": [{"tokens": [...], "max_tokens": 8, "params": {...}, "salt": "s", "lora": path}]}
        all at a time; per request tokens, s to the first one, tokens found in the cache, what the
        connector tells
    {"reset": true}      empties the engine's own prefix cache
    {"abort_after": s, "generate": [...]}   as generate, but those with "abort": true are aborted
        after that time
    {"clear_stored": 1}  has the connector forget what it knows to be stored
    {"state": true}      blocks of the engine's pool, those that are free, requests that are left,
        preemptions so far
"""
import json
import os
import sys
import threading
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

SETTLE_LIMIT_S = 60  # for saves to have read their blocks
STEP_PAUSE_S = 0.0005  # of an engine that waits for loads
PAUSE = threading.Event()


def answer(**fields):
    print("ENGINE " + json.dumps(fields), flush=True)


class Engine:
    def __init__(self, arguments):
        from vllm import LLM
        self.llm = LLM(**{"enforce_eager": True, "max_model_len": 4096, "max_num_seqs": 4,
                          "gpu_memory_utilization": 0.25, "disable_log_stats": False, **arguments})
        self.engine = self.llm.llm_engine
        self.count = 0
        self.pause = threading.Event()  # never set

    def add(self, request):
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        self.count += 1
        extra = {"kv_transfer_params": request["params"]} if "params" in request else None
        params = SamplingParams(temperature=0, max_tokens=request.get("max_tokens", 8),
                                ignore_eos=True, extra_args=extra, detokenize=False)
        prompt = {"prompt_token_ids": request["tokens"]}
        if "salt" in request:
            prompt["cache_salt"] = request["salt"]
        lora = None
        if "lora" in request:
            lora = LoRARequest(os.path.basename(request["lora"]), request.get("lora_id", 1),
                               request["lora"])
        self.engine.add_request(str(self.count), prompt, params, lora_request=lora)
        return str(self.count)

    def generate(self, requests, abort_after=None):
        started = time.monotonic()
        ids = [self.add(request) for request in requests]
        results = {name: {"first_s": None, "tokens": []} for name in ids}
        while self.engine.has_unfinished_requests():
            if abort_after is not None and time.monotonic() - started > abort_after:
                self.engine.abort_request([i for i, r in zip(ids, requests) if r.get("abort")])
                abort_after = None
            for output in self.engine.step():
                result = results[output.request_id.split("-")[0]]
                tokens = list(output.outputs[0].token_ids)
                if tokens and result["first_s"] is None:
                    result["first_s"] = time.monotonic() - started
                result["tokens"] = tokens
                result["cached"] = output.num_cached_tokens
                result["finish"] = output.outputs[0].finish_reason
                if output.kv_transfer_params:
                    result["told"] = output.kv_transfer_params
            self.pause.wait(STEP_PAUSE_S)
        return [results[name] for name in ids]

    def settle(self):
        """Steps until nothing is left to be told to the workers."""
        scheduler = self.engine.engine_core.engine_core.scheduler
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while scheduler.has_requests() and time.monotonic() < deadline:
            self.engine.step()
            self.pause.wait(STEP_PAUSE_S)

    def run(self, command):
        if "reset" in command:
            return {"reset": self.llm.reset_prefix_cache()}
        if "clear_stored" in command:
            return {"cleared": self.llm.reset_prefix_cache(reset_connector=True)}
        if "state" in command:
            scheduler = self.engine.engine_core.engine_core.scheduler
            pool = scheduler.kv_cache_manager.block_pool
            return {"blocks": pool.num_gpu_blocks - 1, "free": pool.get_num_free_blocks(),
                    "requests": len(scheduler.requests),
                    "preemptions": sum(metric.value for metric in self.llm.get_metrics()
                                       if metric.name == "vllm:num_preemptions")}
        results = self.generate(command["generate"], command.get("abort_after"))
        self.settle()
        return {"results": results}


def main():
    engine = Engine(json.loads(sys.argv[1]))
    answer(ready=True)
    for line in sys.stdin:
        try:
            answer(**engine.run(json.loads(line)))
        except Exception as error:  # pylint: disable=broad-except
            answer(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
