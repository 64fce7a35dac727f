#!/usr/bin/env python3
"""Caches of transformers through the real daemon and server: what the command-line tool stored of
a dump is what a model finds, and the other way round."""
import contextlib
import io
import unittest

import torch
import transformers

import harness
import tiny_model
from sluice_kv import cache_file, dump
from sluice_kv.transformers import SluiceCache, planes_of, write_cache

LOSSLESS = 255
CHUNK_TOKENS, NUM_TOKENS = 64, 200
SLO_MS = round(20000 * harness.SLOWDOWN)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
CASES = (("llama", {}), ("llama", {"rope_parameters": LLAMA3}),
         ("gemma3_text", {"sliding_window": 16, "layer_types": ["sliding_attention",
                                                                "full_attention"]}),
         ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                       "partial_rotary_factor": 0.5}}))


class DaemonTest(harness.EndToEnd):
    def start(self):
        self.store = self.server()
        self.daemon = self.node(self.store.address)

    def model(self, name, model_type, options):
        """As from_pretrained makes it, and the folder that it is in."""
        folder = self.folder / name
        tiny_model.write_model(folder, tiny_model.config_of(model_type, **options))
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16).eval(), folder

    def sluice_cache(self, model):
        made = SluiceCache(str(self.daemon.socket_path), model, capacity_tokens=256,
                           chunk_tokens=CHUNK_TOKENS, wait_s=harness.LIMIT_S)
        self.addCleanup(made.close)
        return made

    def test_model_finds_what_was_put(self):
        self.start()
        text = self.folder / "text.txt"
        text.write_text(tiny_model.text(self.seed, NUM_TOKENS), encoding="utf-8")
        for case, (model_type, options) in enumerate(CASES):
            with self.subTest(model=model_type, options=options):
                model, folder = self.model(f"put-{case}", model_type, options)
                out = self.folder / f"caches-{case}"
                with contextlib.redirect_stdout(io.StringIO()):
                    code = dump.main([str(folder), str(text), "--out", str(out)])
                self.assertEqual(code, dump.OK)
                self.put(self.store, out / "text.safetensors", "--lossless", "--chunk-tokens",
                         CHUNK_TOKENS)
                want = cache_file.read_planes(out / "text.safetensors")
                loaded = self.sluice_cache(model).load(want.token_ids, SLO_MS, LOSSLESS)
                self.assertEqual(loaded.levels, (LOSSLESS,) * 3)
                for (k, v), (a, b) in zip(planes_of(loaded.cache), want.planes, strict=True):
                    self.assertTrue(torch.equal(k, a[:, :192]) and torch.equal(v, b[:, :192]))

    @torch.no_grad()
    def test_tool_fetches_what_a_model_stored(self):
        self.start()
        model, _ = self.model("stored", *CASES[0])
        ids = torch.randint(4, 60, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(7))
        cache = transformers.DynamicCache()
        model(ids, past_key_values=cache)
        sluice = self.sluice_cache(model)
        saved = sluice.store(cache, ids[0].tolist(), lossless=True)
        self.assertTrue(saved.stored, saved.message)
        self.assertEqual(saved.stored_chunks, 3)
        own = self.folder / "own.safetensors"
        write_cache(own, cache, sluice.geometry, ids[0].tolist(), sluice.identity.model,
                    sluice.identity.revision)
        self.fetch(self.store, own, "--chunk-tokens", CHUNK_TOKENS, "--level", "lossless",
                   "--check", own)
        lossy = sluice.load(ids[0].tolist(), SLO_MS)
        self.assertEqual(lossy.num_tokens, 192)


if __name__ == "__main__":
    unittest.main()
