#!/usr/bin/env python3
"""Identities of models and adapters."""
import os
import tempfile
import types
import unittest
from pathlib import Path

import transformers

from sluice_kv import identity

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE_BYTES = 3 * identity.SAMPLE_STEP_BYTES + 100


class IdentityTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def model(self, name="model", weights=b"weights", **files):
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "config.json").write_text("{}")
        for file, text in files.items():
            (folder / file).write_text(text)
        return folder

    def test_names(self):
        snapshot = self.model(f"hub/models--org--Some-Model.1/snapshots/{COMMIT}")
        plain = self.model(f"hub/models--gpt2/snapshots/{COMMIT}")
        link = self.folder / "latest"
        link.symlink_to(snapshot)
        for path, name in (("org/Some-Model.1", "org/Some-Model.1"), (snapshot, "org/Some-Model.1"),
                           (f"{snapshot}/", "org/Some-Model.1"), (link, "org/Some-Model.1"),
                           (plain, "gpt2"), (self.model("mine"), "mine"),
                           (f"{self.folder}/mine/", "mine"), (f"{self.folder}/mine/.", "mine")):
            with self.subTest(path=str(path)):
                self.assertEqual(identity.model_name(path), name)
        with self.assertRaisesRegex(identity.IdentityError, "no such file or folder"):
            identity.model_name(self.folder / "missing")

    def test_snapshots_are_named_by_their_commit(self):
        snapshot = self.model(f"hub/models--org--name/snapshots/{COMMIT}")
        self.assertEqual(identity.revision(snapshot, "torch.bfloat16"), f"{COMMIT}/bfloat16")
        for name in ("awq", "auto_awq", "awq_marlin"):
            self.assertEqual(identity.revision(snapshot, "float16", name), f"{COMMIT}/float16/awq")

    def test_quantization(self):
        for said, want in ((None, None), ({"quant_method": "awq", "bits": 4}, "awq"), ({}, None),
                           (transformers.BitsAndBytesConfig(load_in_8bit=True), "bitsandbytes")):
            config = types.SimpleNamespace(quantization_config=said)
            self.assertEqual(identity.quantization_of(config), want)
        self.assertIsNone(identity.quantization_of(transformers.LlamaConfig()))

    def test_weights_count_and_their_place_does_not(self):
        digest = identity.weights_digest(self.model())
        self.assertEqual(len(digest), 64)
        self.assertEqual(identity.weights_digest(self.model("moved")), digest)
        self.assertEqual(identity.weights_digest(self.model("moved", **{"README.md": "hi"})),
                         digest)
        for change in (self.model("a", b"Weights"), self.model("b", **{"config.json": "{ }"}),
                       self.model("c", **{"more.bin": ""})):
            self.assertNotEqual(identity.weights_digest(change), digest)

    def test_large_files_are_sampled(self):
        whole = bytes(LARGE_BYTES)
        digest = identity.weights_digest(self.model(weights=whole))
        step, sample = identity.SAMPLE_STEP_BYTES, identity.SAMPLE_BYTES
        for at in (0, sample - 1, step, 3 * step, LARGE_BYTES - 1):
            with self.subTest(at=at):
                changed = whole[:at] + b"x" + whole[at + 1:]
                self.assertNotEqual(identity.weights_digest(self.model(weights=changed)), digest)
        unseen = whole[:sample] + b"x" + whole[sample + 1:]
        self.assertEqual(identity.weights_digest(self.model(weights=unseen)), digest)
        self.assertNotEqual(identity.weights_digest(self.model(weights=whole[:-1])), digest)

    def test_adapters_are_read_whole(self):
        whole = bytes(LARGE_BYTES)
        digest = identity.adapter_digest(self.model(weights=whole))
        changed = self.model("b", whole[:5000] + b"x" + whole[5001:])
        self.assertNotEqual(identity.adapter_digest(changed), digest)
        scaled = self.model("c", whole, **{"adapter_config.json": "{}"})
        self.assertNotEqual(identity.adapter_digest(scaled), digest)
        with self.assertRaisesRegex(identity.IdentityError, "org/lora: the adapter is no local"):
            identity.adapter_digest("org/lora")

    def test_refused(self):
        empty = self.folder / "empty"
        empty.mkdir()
        with self.assertRaisesRegex(identity.IdentityError, "has no weights"):
            identity.weights_digest(empty)
        os.environ["HF_HUB_OFFLINE"] = "1"
        with self.assertRaisesRegex(identity.IdentityError, "not in the cache of the hub"):
            identity.weights_digest("no-such-org/no-such-model")
        with self.assertRaisesRegex(identity.IdentityError, "more than 256 bytes"):
            identity.revision(self.model(), "bfloat16", "q" * 256)


if __name__ == "__main__":
    unittest.main()
