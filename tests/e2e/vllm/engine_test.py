#!/usr/bin/env python3
"""An engine without a daemon, with too few blocks, with adapters, with settings that cannot be."""
import json
import unittest
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine_case import CHUNK, MODEL, EngineCase, EngineProcess, why_not
from harness import EndToEnd

LOSSLESS = {"level": "lossless", "save_lossless": True, "save_blocks_share": 1}
NONE = {"load": False, "save": False}


class LateDaemon(EngineCase):
    """One test, for a daemon comes late once."""
    SETTINGS = LOSSLESS
    ENGINE = {"dtype": "float32", "num_gpu_blocks_override": 48}
    DAEMON_FIRST = False

    def test_all_is_computed_until_there_is_one(self):
        requests = self.requests(self.prompts(3, 3 * CHUNK + 5, 5 * CHUNK))
        computed = self.generate(requests)
        self.assertEqual([self.loaded_tokens(result) for result in computed], [0] * 3)
        self.assertTrue(self.log_has("is not there yet; all is computed until it is"))
        self.forget()
        self.start_daemon()
        self.wait_for_pool()
        self.assertEqual(self.engine.ask(clear_stored=True), {"cleared": True})
        self.assert_same_tokens(self.store(requests), computed)
        loaded = self.generate(requests)
        self.assert_same_tokens(loaded, computed)
        for request, result in zip(requests, loaded):
            self.assertEqual(self.loaded_tokens(result),
                             (len(request["tokens"]) - 1) // CHUNK * CHUNK)
        self.forget()
        for params in ({"slo_ms": -1}, {"level": "best"}, {"save": "no"}):
            with self.subTest(params=params):
                (result,) = self.generate([{**requests[0], "params": params}])
                self.assert_same_tokens([result], computed)
                self.assertEqual(self.loaded_tokens(result), 0)
                self.forget()


class SmallPool(EngineCase):
    """Prompts are computed by parts, and there is room for the prompts but not for the answers."""
    SETTINGS = LOSSLESS
    ENGINE = {"dtype": "float32", "max_model_len": 1024, "num_gpu_blocks_override": 17,
              "max_num_batched_tokens": 256}

    def test_preempted_requests_are_right_and_so_is_what_is_stored_of_them(self):
        prompts = self.prompts(4, 4 * CHUNK - 24, 4 * CHUNK - 20)
        right = self.generate(self.requests(prompts, max_tokens=32, params=NONE), 1)
        self.forget()
        before = self.engine.ask(state=True)["preemptions"]
        results = self.store(self.requests(prompts, max_tokens=32))
        self.assertGreater(self.engine.ask(state=True)["preemptions"], before)
        self.assert_same_tokens(results, right)
        longer = self.requests([prompt + result["tokens"]
                                for prompt, result in zip(prompts, right)], max_tokens=4)
        loaded = self.generate(longer, 1)
        self.assertEqual([self.loaded_tokens(result) for result in loaded], [4 * CHUNK] * 4)
        self.forget()
        self.assert_same_tokens(loaded, self.generate([{**r, "params": NONE} for r in longer], 1))


class Adapters(EngineCase):
    SETTINGS = LOSSLESS
    ENGINE = {"dtype": "float32", "num_gpu_blocks_override": 48, "enable_lora": True,
              "max_lora_rank": 8, "max_loras": 2}

    def test_adapters_share_with_nobody(self):
        (tokens,) = self.prompts(1, 2 * CHUNK + 5, 2 * CHUNK + 40)
        plain = {"tokens": tokens, "max_tokens": 8}
        kinds = [{**plain, "lora": str(self.adapter(name, number)), "lora_id": number}
                 for number, name in enumerate("ab", 1)] + [plain]
        right = self.generate([{**request, "params": NONE} for request in kinds], 1)
        self.assertEqual(len({tuple(result["tokens"]) for result in right}), 3)
        for request, want in zip(kinds, right):
            self.forget()
            (result,) = self.store([request])
            self.assertEqual(self.loaded_tokens(result), 0)
            self.assert_same_tokens([result], [want])
        loaded = self.generate(kinds, 1)
        self.assert_same_tokens(loaded, right)
        self.assertEqual([self.loaded_tokens(result) for result in loaded], [2 * CHUNK] * 3)

    def adapter(self, name, seed):
        """Folder of a random one."""
        config = json.loads((Path(MODEL) / "config.json").read_text(encoding="utf-8"))
        hidden = config["hidden_size"]
        heads = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
        random = torch.Generator().manual_seed(seed)
        tensors = {}
        for layer in range(config["num_hidden_layers"]):
            for module, width in (("q_proj", hidden), ("v_proj", heads)):
                key = f"base_model.model.model.layers.{layer}.self_attn.{module}"
                tensors[f"{key}.lora_A.weight"] = torch.randn(8, hidden, generator=random) / 4
                tensors[f"{key}.lora_B.weight"] = torch.randn(width, 8, generator=random) / 4
        folder = self.folder / name
        folder.mkdir()
        save_file(tensors, folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"],
             "bias": "none", "task_type": "CAUSAL_LM"}), encoding="utf-8")
        return folder


class Refused(EndToEnd):
    """Engines that do not start; each is one start."""

    @unittest.skipIf(why_not(), why_not())
    def test_settings_that_cannot_be(self):
        for settings, transfer, message in (
                ({}, {"kv_load_failure_policy": "fail"},
                 'set "kv_load_failure_policy": "recompute"'),
                ({"slo": 3}, {}, "has no setting 'slo'"),
                ({"chunk_tokens": 100}, {}, "not a multiple of the engine's block size 128")):
            with self.subTest(message=message), self.assertRaises(AssertionError) as refused:
                EngineProcess(self.folder, settings, {"load_format": "dummy"}, transfer=transfer)
            self.assertIn(message, str(refused.exception))


if __name__ == "__main__":
    unittest.main()
