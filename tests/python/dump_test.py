#!/usr/bin/env python3
"""sluice-dump and cache files: what a model computes is what the command-line tool reads."""
import contextlib
import io
import json
import os
import subprocess
import sys
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import torch
import transformers

import tiny_model
from sluice_kv import cache_file, dump, geometry, identity
from sluice_kv.dynamic_cache import cache_of, planes_of

GEMMA3 = {"head_dim": 16, "sliding_window": 16,
          "layer_types": ["sliding_attention", "full_attention"]}
CASES = (("llama", {}), ("gemma3_text", GEMMA3),
         ("smollm3", {"num_hidden_layers": 4}))  # without rotary embedding in the last layer


class DumpTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "caches"

    def model(self, model_type="llama", dtype=torch.bfloat16, **options):
        self.model_folder = self.folder / f"tiny-{model_type}"
        return tiny_model.write_model(self.model_folder,
                                      tiny_model.config_of(model_type, **options), dtype)

    def text(self, name, num_words=100):
        path = self.folder / name
        path.write_text(tiny_model.text(name, num_words), encoding="utf-8")
        return path

    def dump(self, *arguments, code=dump.OK):
        """Runs the command; returns what it says, errors last."""
        said, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            try:
                have = dump.main([str(self.model_folder), "--out", str(self.out),
                                  *map(str, arguments)])
            except SystemExit as end:
                have = end.code
        self.assertEqual(have, code, error.getvalue())
        return said.getvalue() + error.getvalue()

    def sluice(self, *arguments):
        done = subprocess.run([os.environ["SLUICE_CLI"], *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_without_transformers_it_says_what_to_install(self):
        self.model()
        with unittest.mock.patch.dict(sys.modules, {"transformers": None}):
            said = self.dump(self.text("a.txt"), code=dump.FAILURE)
        self.assertIn("client/python[transformers]", said)

    @torch.no_grad()
    def test_cache_is_the_models_own(self):
        for model_type, options in CASES:
            with self.subTest(model=model_type):
                model = self.model(model_type, torch.float32, **options)
                self.dump("--tokens", 80, "--dtype", "float32", self.text("a.txt"))
                file = cache_file.read_planes(self.out / "a.safetensors")
                ids = torch.tensor([file.token_ids])
                self.assertEqual(ids.shape, (1, 80))
                # Goes on from the first 60 tokens as if they had been computed.
                front = cache_of([(k[:, :60], v[:, :60]) for k, v in file.planes])
                have = model(ids[:, 60:], past_key_values=front).logits
                torch.testing.assert_close(have, model(ids).logits[:, 60:], rtol=1e-3, atol=1e-3)
                self.assertEqual(cache_of(file.planes).get_seq_length(), 80)

    def test_command_line_tool_reads_it(self):
        for model_type, options in CASES:
            with self.subTest(model=model_type):
                self.model(model_type, **options)
                self.dump(self.text("a.txt"))
                self.sluice("encode", "--lossless", self.out / "a.safetensors", "kv.sluice")
                said = json.loads(self.sluice("inspect", "--json", "kv.sluice"))
                self.assertEqual(said["namespace"]["model"], f"tiny-{model_type}")
                self.assertEqual(said["namespace"]["revision"],
                                 identity.revision(self.model_folder, "bfloat16"))
                self.sluice("decode", "--level", "lossless", "kv.sluice", "same.safetensors")
                want = cache_file.read_planes(self.out / "a.safetensors")
                have = cache_file.read_planes(self.folder / "same.safetensors")
                self.assertEqual(have.token_ids, want.token_ids)
                for a, b in zip(have.planes, want.planes, strict=True):
                    self.assertTrue(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]))

    def test_profile_is_learnt(self):
        self.model()
        texts = [self.text(f"{name}.txt", 600) for name in "abcd"]
        said = self.dump("--limit", 3, *texts)
        self.assertEqual(said.splitlines(), [
            f"{self.out / name}.safetensors: 512 tokens, 0.1 MB" for name in "abc"])
        self.assertEqual(sorted(path.name for path in self.out.iterdir()),
                         ["a.safetensors", "b.safetensors", "c.safetensors"])
        self.sluice("calibrate", "--out", "model.profile", *sorted(self.out.iterdir()))

    def test_refused(self):
        self.model()
        text = self.text("a.txt")
        (self.folder / "other").mkdir()
        (self.folder / "empty.txt").touch()
        (self.folder / "latin.txt").write_bytes(b"caf\xe9")
        for arguments, says in (
                ((self.folder / "missing.txt",), "missing.txt: there is no such file"),
                ((text, self.folder / "other" / "a.txt"), "rename one of them"),
                ((self.folder / "empty.txt",), "empty.txt: has no text"),
                ((self.folder / "latin.txt",), "latin.txt: is not UTF-8 (byte 3)"),
                (("--tokens", 513, text), "--tokens: it is 513; the model takes 512 at most"),
                (("--tokens", 0, text), "--tokens: it is 0; it must be a whole number above 0"),
                (("--out", self.model_folder, text), "is the model's folder"),
                (("--dtype", "int8", text), "argument --dtype")):
            with self.subTest(says=says):
                self.assertIn(says, self.dump(*arguments, code=dump.USAGE))
        self.model_folder = self.folder / "other"
        self.assertIn("other: cannot be loaded", self.dump(text, code=dump.USAGE))
        transformers.BloomConfig().save_pretrained(self.model_folder)
        self.assertIn("other: model type \"bloom\" is not known", self.dump(text, code=dump.USAGE))
        self.model_folder = self.folder / "missing"
        self.assertIn("no such file or folder", self.dump(text, code=dump.USAGE))

    def test_model_of_the_hub_is_named_by_its_id_and_commit(self):
        self.model()
        commit = "0123456789abcdef0123456789abcdef01234567"
        repo = self.folder / "hub" / "models--org--tiny"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs" / "main").write_text(commit, encoding="ascii")
        (repo / "snapshots").mkdir()
        self.model_folder.rename(repo / "snapshots" / commit)
        done = subprocess.run(
            [sys.executable, "-B", "-m", "sluice_kv.dump", "org/tiny", self.text("a.txt"),
             "--out", self.out], capture_output=True, text=True, check=False,
            env={**os.environ, "HF_HUB_CACHE": str(self.folder / "hub"), "HF_HUB_OFFLINE": "1"})
        self.assertEqual((done.returncode, done.stderr), (dump.OK, ""))
        said = cache_file.read_planes(self.out / "a.safetensors").metadata
        self.assertEqual((said["model"], said["revision"]), ("org/tiny", f"{commit}/bfloat16"))

    def test_help_has_examples(self):
        self.model_folder = ""
        self.assertIn("sluice calibrate --out", self.dump("--help"))


class CacheFileTest(unittest.TestCase):
    def setUp(self):
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "kv.safetensors"
        self.geometry = geometry.geometry_of(tiny_model.config_of("llama"), "bfloat16")
        self.planes = [(torch.rand(2, 8, 16).bfloat16(), torch.rand(2, 8, 16).bfloat16())
                       for _ in range(2)]

    def test_other_geometry_is_refused(self):
        for planes, tokens, says in ((self.planes[:1], 8, "2 planes, but its geometry 4"),
                                     (self.planes, 9, "keys of layer 0 are"),
                                     ([(k.float(), v) for k, v in self.planes], 8, "float32")):
            with self.assertRaisesRegex(cache_file.CacheFileError, says):
                cache_file.write_planes(self.path, planes, self.geometry, range(tokens), "m")
        self.assertEqual(list(self.path.parent.iterdir()), [])

    def test_files_without_a_whole_cache_are_refused(self):
        cache_file.write_planes(self.path, self.planes, self.geometry, range(8), "m")
        with cache_file.safetensors.safe_open(self.path, "pt") as file:
            tensors, metadata = ({name: file.get_tensor(name) for name in file.keys()},
                                 file.metadata())
        save = cache_file.safetensors.torch.save_file
        save(tensors, self.path, {**metadata, "sluice_missing_chunks": "[1]"})
        with self.assertRaisesRegex(cache_file.CacheFileError, r"chunks \[1\] .* are missing"):
            cache_file.read_planes(self.path)
        del tensors["layers.0.v"]
        save(tensors, self.path, metadata)
        with self.assertRaisesRegex(cache_file.CacheFileError, "must have the tensors"):
            cache_file.read_planes(self.path)
        self.path.write_text("no cache")
        with self.assertRaisesRegex(cache_file.CacheFileError, "is no safetensors file"):
            cache_file.read_planes(self.path)

    @torch.no_grad()
    def test_caches_that_are_not_whole_are_refused(self):
        config = tiny_model.config_of("gemma3_text", **GEMMA3)
        model = transformers.AutoModelForCausalLM.from_config(config)
        short = model(torch.full((1, 40), 5), use_cache=True).past_key_values
        with self.assertRaisesRegex(ValueError, "behind a sliding window"):
            planes_of(short)
        two = transformers.DynamicCache()
        model(torch.full((2, 8), 5), past_key_values=two)
        with self.assertRaisesRegex(ValueError, "of 2 sequences"):
            planes_of(two)


if __name__ == "__main__":
    unittest.main()
