#!/usr/bin/env python3
"""Caches of transformers through a node daemon: a model goes on from what was loaded."""
import tempfile
import unittest
from pathlib import Path

import torch
import transformers

import tiny_model
from fake_node import LOSSLESS, FakeNode
from sluice_kv.transformers import SluiceCache, planes_of

CHUNK_TOKENS = 16
IDS = torch.arange(100) % 50 + 4
CASES = (("llama", torch.float32), ("llama", torch.bfloat16), ("gemma3_text", torch.float32))


class SluiceCacheTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.node = self.start_node()

    def start_node(self):
        node = FakeNode(self.folder / "node.sock")
        self.addCleanup(node.stop)
        return node

    def model(self, model_type="llama", dtype=torch.float32):
        """As from_pretrained makes it."""
        folder = self.folder / model_type
        options = {"sliding_window": 8} if model_type == "gemma3_text" else {}
        tiny_model.write_model(folder, tiny_model.config_of(model_type, **options), dtype)
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def sluice(self, model, **options):
        made = SluiceCache(str(self.folder / "node.sock"), model, capacity_tokens=128,
                           chunk_tokens=CHUNK_TOKENS, wait_s=20, **options)
        self.addCleanup(made.close)
        return made

    @torch.no_grad()
    def computed(self, model, num_tokens=100):
        cache = transformers.DynamicCache()
        logits = model(IDS[None, :num_tokens], past_key_values=cache).logits[0]
        return cache, logits

    @torch.no_grad()
    def test_model_goes_on_from_what_is_loaded(self):
        for model_type, dtype in CASES:
            with self.subTest(model=model_type, dtype=dtype):
                model = self.model(model_type, dtype)
                cache, logits = self.computed(model)
                self.assertTrue(self.sluice(model).store(cache, IDS.tolist()).stored)
                loaded = self.sluice(model).load(IDS.tolist(), 1000)  # another engine
                self.assertEqual((loaded.num_tokens, loaded.levels), (96, (LOSSLESS,) * 6))
                for (k, v), (a, b) in zip(planes_of(loaded.cache), planes_of(cache), strict=True):
                    self.assertTrue(torch.equal(k, a[:, :96]) and torch.equal(v, b[:, :96]))
                rest = model(IDS[None, 96:], past_key_values=loaded.cache).logits[0]
                if dtype == torch.float32:
                    torch.testing.assert_close(rest, logits[96:], rtol=1e-3, atol=1e-3)
                self.assertEqual(loaded.cache.get_seq_length(), 100)

    def test_gap_ends_the_prefix(self):
        model = self.model()
        sluice = self.sluice(model)
        sluice.store(self.computed(model)[0], IDS.tolist())
        self.node.lost = {2}
        self.assertEqual(sluice.load(IDS.tolist(), 1000).num_tokens, 2 * CHUNK_TOKENS)
        self.node.lost = {0}
        loaded = sluice.load(IDS.tolist(), 1000)
        self.assertEqual((loaded.num_tokens, loaded.cache.get_seq_length()), (0, 0))

    def test_last_token_is_left_to_the_model(self):
        model = self.model()
        sluice = self.sluice(model)
        sluice.store(self.computed(model)[0], IDS.tolist())
        for length, want in ((1, 0), (16, 0), (17, 16), (32, 16), (33, 32)):
            self.assertEqual(sluice.load(IDS[:length].tolist(), 1000).num_tokens, want)

    def test_other_models_and_tenants_do_not_meet(self):
        model = self.model()
        self.sluice(model).store(self.computed(model)[0], IDS.tolist())
        for options in ({"tenant": "other"}, {"adapter": "a" * 64}, {"salt": "s"}):
            loaded = self.sluice(model, **options).load(IDS.tolist(), 1000)
            self.assertEqual(loaded.num_tokens, 0)
        self.assertEqual(self.sluice(self.model("smollm3")).load(IDS.tolist(), 1000).num_tokens, 0)

    def test_short_and_long_contexts(self):
        model = self.model()
        sluice = self.sluice(model)
        saved = sluice.store(self.computed(model, 15)[0], IDS[:15].tolist())
        self.assertIn("shorter than a chunk", saved.message)
        self.assertEqual(self.node.chunks, {})
        cache = transformers.DynamicCache()
        for layer in range(2):
            cache.update(torch.zeros(1, 2, 144, 16), torch.zeros(1, 2, 144, 16), layer)
        with self.assertRaisesRegex(ValueError, "144 tokens; capacity_tokens is 128"):
            sluice.store(cache, [5] * 144)
        self.assertEqual(sluice.load([5] * 144, 1000).num_tokens, 0)

    def test_daemon_that_does_not_end_a_load_is_cut_off(self):
        model = self.model()
        sluice = self.sluice(model)
        sluice.store(self.computed(model)[0], IDS.tolist())
        self.node.silent = True
        self.assertEqual(sluice.load(IDS.tolist(), 1).num_tokens, 96)
        self.node.silent = False
        for pool in self.node.pools.values():  # what it writes now reaches nobody
            pool.memory.fill_(7)
        self.assertTrue(sluice.wait(20))
        loaded = sluice.load(IDS.tolist(), 1000)
        self.assertEqual(loaded.num_tokens, 96)
        self.assertTrue(torch.equal(planes_of(loaded.cache)[0][0],
                                    planes_of(self.computed(model)[0])[0][0][:, :96]))

    def test_without_a_daemon_nothing_is_loaded(self):
        model = self.model()
        sluice = SluiceCache(str(self.folder / "none.sock"), model, capacity_tokens=128,
                             chunk_tokens=CHUNK_TOKENS, wait_s=0)
        self.addCleanup(sluice.close)
        self.assertEqual(sluice.load(IDS.tolist(), 1000).num_tokens, 0)
        self.assertFalse(sluice.store(self.computed(model)[0], IDS.tolist()).stored)


if __name__ == "__main__":
    unittest.main()
