#!/usr/bin/env python3
"""Geometries of models: the keys of every known model, turned back by its tables, forget where they
were; and plain tables are bit for bit those of the command-line tool."""
import dataclasses
import json
import math
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import safetensors.torch
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from sluice_kv import geometry, rotary
from tiny_model import config_of

EXPERTS = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1,
           "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                               "partial_rotary_factor": 0.5}}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 64}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
            "short_factor": [1.0 + i / 8 for i in range(8)],
            "long_factor": [2.0 + i for i in range(8)], "original_max_position_embeddings": 64}
GEMMA3 = {"head_dim": 16, "sliding_window": 8, "layer_types": ["sliding_attention",
                                                              "full_attention"]}
CASES = (
    ("gemma", {"head_dim": 32}), ("gemma2", {"head_dim": 32, "sliding_window": 8}),
    ("gemma3_text", GEMMA3), ("llama", {}),
    ("gpt_neox", {**PARTIAL, "num_key_value_heads": None}),
    ("llama", {"rope_parameters": LLAMA3}), ("llama", {"rope_parameters": YARN}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    ("mistral", {"sliding_window": 8}), ("mixtral", EXPERTS), ("olmo2", {}), ("phi", PARTIAL),
    ("phi3", PARTIAL), ("phi3", {"rope_parameters": LONGROPE}), ("qwen2", {}),
    ("qwen2_moe", EXPERTS), ("qwen3", {"head_dim": 32}),
    ("qwen3_moe", {**EXPERTS, "head_dim": 16}),
    ("smollm3", {"num_hidden_layers": 4}), ("starcoder2", {}))
NUM_TOKENS = 48


def turned_back(keys, table):
    """Keys [heads, tokens, dim] as they were before the rotary embedding."""
    if table is None:
        return keys
    pairs, out = len(table.inverse_frequencies), keys.double().clone()
    angles = torch.arange(keys.shape[1]).double()[:, None] * torch.tensor(
        table.inverse_frequencies, dtype=torch.float64)
    first = keys[..., table.first_dim:table.first_dim + pairs].double()
    second = keys[..., table.first_dim + pairs:table.first_dim + 2 * pairs].double()
    out[..., table.first_dim:table.first_dim + pairs] = first * angles.cos() + second * angles.sin()
    out[..., table.first_dim + pairs:table.first_dim + 2 * pairs] = (
        second * angles.cos() - first * angles.sin())
    return out


class GeometryTest(unittest.TestCase):
    @torch.no_grad()
    def test_keys_turned_back_forget_their_position(self):
        # All tokens are the same, so before the embedding the keys of a layer are the same too.
        self.assertEqual({name for name, _ in CASES}, geometry.KNOWN_MODELS)
        for name, options in CASES:
            with self.subTest(model=name, options=options):
                config = config_of(name, **options)
                torch.manual_seed(7)
                model = transformers.AutoModelForCausalLM.from_config(config).eval()
                shape = geometry.geometry_of(config, torch.float32, max_model_len=NUM_TOKENS)
                cache = transformers.DynamicCache()
                model(torch.full((1, NUM_TOKENS), 5), past_key_values=cache)
                for plane in shape.planes[::2]:
                    keys = cache.layers[plane.model_layer].keys[0]
                    self.assertEqual(list(keys.shape),
                                     [plane.num_heads, NUM_TOKENS, plane.head_dim])
                    table = (None if plane.rotary_table is None
                             else shape.rotary_tables[plane.rotary_table])
                    back = turned_back(keys, table)
                    spread = (back - back[:, :1]).abs().max() / back.abs().max()
                    self.assertLess(spread, 1e-4)

    def test_scaled_frequencies_are_those_of_transformers(self):
        for parameters, length in ((LLAMA3, 0), (YARN, 0), (LONGROPE, 64), (LONGROPE, 65)):
            with self.subTest(rope_type=parameters["rope_type"], length=length):
                config = config_of("llama", rope_parameters=parameters)
                want, _ = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=length)
                have = rotary.inverse_frequencies(parameters, 16, length or None)
                for a, b in zip(have, want.tolist(), strict=True):
                    self.assertTrue(math.isclose(a, b, rel_tol=1e-5), (a, b))

    def test_layers_with_tables_of_their_own(self):
        shape = geometry.geometry_of(config_of("gemma3_text", **GEMMA3), "bfloat16")
        self.assertEqual([p.rotary_table for p in shape.planes], [0, None, 1, None])
        self.assertEqual(shape.rotary_tables[0].inverse_frequencies, tuple(rotary.plain(1e4, 16)))
        self.assertEqual(shape.rotary_tables[1].inverse_frequencies, tuple(rotary.plain(1e6, 16)))

    def test_ranks(self):
        config = config_of("llama", num_hidden_layers=4)
        whole = geometry.geometry_of(config, "float16")
        part = geometry.geometry_of(config, "float16", layers=range(2, 4), kv_heads_divisor=2)
        self.assertEqual(part.planes, tuple(dataclasses.replace(plane, num_heads=1)
                                            for plane in whole.planes[4:]))
        copied = geometry.geometry_of(config, "float16", kv_heads_divisor=4)
        self.assertEqual({plane.num_heads for plane in copied.planes}, {1})
        with self.assertRaisesRegex(geometry.UnsupportedModel, "2 KV heads .* 3 ranks"):
            geometry.geometry_of(config, "float16", kv_heads_divisor=3)

    def test_refused(self):
        dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
        for config, says in (
                (config_of("deepseek_v3"), "multi-head latent attention"),
                (transformers.BloomConfig(), "model type \"bloom\" is not known"),
                (config_of("qwen3_next"), "layer of type linear_attention"),
                (transformers.Qwen2VLConfig(), "model type \"qwen2_vl_text\" is not known"),
                (config_of("llama", rope_parameters=dynamic), "rope_type \"dynamic\""),
                (config_of("llama", rope_parameters={**LLAMA3, "mrope_section": [1, 1]}),
                 "mrope_section"),
                (config_of("phi3", rope_parameters=LONGROPE), "say max_model_len")):
            with self.subTest(says=says):
                with self.assertRaisesRegex(geometry.UnsupportedModel, says):
                    geometry.geometry_of(config, "bfloat16")
        with self.assertRaisesRegex(geometry.UnsupportedModel, "dtype int8"):
            geometry.geometry_of(config_of("llama"), torch.int8)

    def name_space(self, metadata, dim):
        """Digest of the namespace of a cache of one layer, as the command-line tool says."""
        planes = {f"layers.0.{kind}": torch.ones(1, 8, dim).bfloat16() for kind in "kv"}
        safetensors.torch.save_file(planes, self.folder / "kv.safetensors",
                                    {"model": "plain", **metadata})
        said = [subprocess.run([os.environ["SLUICE_CLI"], *command], cwd=self.folder, check=True,
                               capture_output=True, text=True).stdout
                for command in (("encode", "kv.safetensors", "kv.sluice"),
                                ("inspect", "--json", "kv.sluice"))]
        return json.loads(said[1])["namespace"]["digest"]

    def test_plain_table_is_that_of_the_command_line_tool(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for theta, dim in ((10000.0, 64), (500000.0, 128), (1e6, 80), (8e6, 96), (130000.0, 64)):
            with self.subTest(theta=theta, dim=dim):
                own = rotary.plain(theta, dim)
                want = self.name_space({"rope_theta": str(theta)}, dim)
                self.assertEqual(self.name_space({"rope_inv_freq": json.dumps(own)}, dim), want)
                own[-1] = math.nextafter(own[-1], 1)
                self.assertNotEqual(self.name_space({"rope_inv_freq": json.dumps(own)}, dim), want)


if __name__ == "__main__":
    unittest.main()
