#!/usr/bin/env python3
"""Profiles: shown, listed, got; inside a .sluice file or not; through a server and a daemon."""
import json
import os
import shutil
import struct
import unittest
from pathlib import Path
from unittest import mock

import cache_file
import harness
from harness import CHUNK, DAMAGED, FAILURE, PARTIAL, UNREACHABLE

LAYERS, PAIRS = 36, 4096


def large(cache):
    """Gives every model layer a long rotary table of its own: a profile of over 1 MiB."""
    tokens = cache.tensors["layers.0.k"][1][1]
    cache.tensors.clear()
    for layer in range(LAYERS):
        cache.metadata[f"layers.{layer}.rope_inv_freq"] = json.dumps([1 / (layer + 1)] * PAIRS)
        for kind, dim in (("k", 2 * PAIRS), ("v", 2)):
            cache.tensors[f"layers.{layer}.{kind}"] = (
                "BF16", [1, tokens, dim], b"\x80\x3f" * (tokens * dim))


class ShowTest(harness.ServerTest):
    def setUp(self):
        super().setUp()
        self.cache_path = self.cache()
        self.put(self.cache_path)
        report = self.sluice("profile", "ls", "--json", "--server", self.address).json()
        self.id = report["profiles"][0]["id"]

    def profile(self, *arguments, **options):
        return self.sluice("profile", arguments[0], "--server", self.address, *arguments[1:],
                           **options)

    def test_ls(self):
        report = self.profile("ls", "--json").json()["profiles"]
        self.assertEqual([entry["models"] for entry in report], [["test-model"]])
        self.put(self.cache_path, "--tenant", "other")  # the same profile, once
        table = self.profile("ls").out.splitlines()
        self.assert_aligned(table, right=1)
        self.assertEqual(len(table), 2)
        self.assertIn(self.id, table[1])
        self.assertIn("test-model and 1 other namespace", table[1])
        self.assertEqual(self.server("stats", "--json").json()["profiles"], 1)

    def test_get_and_show(self):
        out = self.path("p.profile")
        report = self.profile("get", "--json", "--out", out, self.id[:8]).json()
        self.assertEqual((report["id"], report["bytes"]), (self.id, out.stat().st_size))
        shown = self.sluice("profile", "show", "--json", out).json()
        self.assertEqual(shown["id"], self.id)
        self.assertEqual(len(shown["planes"]), 4)
        self.assertEqual(len(shown["groups"]), 2)
        self.assertEqual([level["step_ratio"] for level in shown["levels"]], [9, 3, 1])
        self.assertEqual(shown["sink_tokens"], 4)
        # Got once, it is this user's, with or without a server.
        self.assertEqual(self.sluice("profile", "show", "--json", self.id).json(), shown)
        self.assertEqual(self.sluice("profile", "show", "--json", self.id[:6]).json(), shown)
        local = self.sluice("profile", "ls", "--local", "--json").json()["profiles"]
        self.assertEqual([entry["id"] for entry in local], [self.id])
        text = self.sluice("profile", "show", self.id).out
        self.assertNotIn("layers.1.v", text)
        self.assertIn("level", text.split("\n\n")[1].splitlines()[0])
        text = self.sluice("profile", "show", "--planes", self.id).out
        for words in (self.id, "built-in", "layers.1.v", "half", "group", "the first 4 tokens"):
            self.assertIn(words, text)
        for block in text.split("\n\n")[1:]:
            self.assert_aligned(block.splitlines())
        self.assertEqual(self.sluice("inspect", "--json", out).json()["profile"]["id"], self.id)

    def test_unknown(self):
        self.refused("profile", "show", "--server", self.address, "ab" * 32,
                     says=["not stored here", f"sluice profile ls --server {self.address}"])
        self.refused("profile", "get", "--server", self.address, "abcd",
                     says=["no profile's id begins with abcd", "sluice profile ls"])
        self.refused("profile", "get", "--server", self.address, "x", says=["no id"])
        self.refused("profile", "ls", "--server", "127.0.0.1:1", code=UNREACHABLE, says=["hint"])
        self.refused("profile", "get", "--server", "127.0.0.1:1", "ab" * 32, code=UNREACHABLE,
                     says=["hint"])

    def test_given_profile(self):
        """By file or by id, it is the one that is used."""
        out, encoded = self.path("p.profile"), self.path("c.sluice")
        self.profile("get", "--out", out, self.id)
        for given in (out, self.id, self.id[:7].upper()):
            self.sluice("encode", *CHUNK, "--profile", given, self.cache_path, encoded)
            self.assertEqual(
                self.sluice("inspect", "--json", encoded).json()["profile"]["id"], self.id)
        self.fetch("--like", self.cache_path, "--profile", self.id)
        self.put(self.cache_path, "--profile", out, "--tenant", "t")
        self.refused("put", "--server", self.address, "--profile", out, encoded,
                     says=["has a profile already"])
        other = self.cache("other.safetensors", dim=32)
        self.refused("encode", *CHUNK, "--profile", out, other, encoded,
                     says=["planes[0].head_dim is 16 in the profile and 32 here",
                           "sluice profile show"])

    def test_bench_with_profile(self):
        self.server("bench", "--like", self.cache_path, "--profile", self.id, "--contexts", 1,
                    "--loads", 2, *CHUNK)


def eight_times(cache):
    """Makes BF16 values eight times as large, as those of another model may be."""
    for name, (dtype, shape, data) in cache.tensors.items():
        values = struct.unpack(f"<{len(data) // 2}H", data)
        cache.tensors[name] = dtype, shape, struct.pack(
            f"<{len(values)}H", *(v + (3 << 7) if v & 0x7f80 else v for v in values))


class CalibratedProfileTest(harness.ServerTest):
    """A profile that is not the built-in one, from calibration to the daemon."""

    def setUp(self):
        super().setUp()
        dumps = [self.context(f"dump{i}.safetensors") for i in range(4)]
        self.profile = self.path("model.profile")
        report = self.sluice("calibrate", "--json", "--out", self.profile, *dumps).json()
        self.id = report["profile_id"]
        self.cache_path = self.context("in.safetensors")
        self.out = self.path("out.safetensors")

    def context(self, name, change=None):
        self.seed += 1
        return self.cache(name, change, tokens=256, heads=1)

    def test_bad_target(self):
        for target in ("nan", "0", "-1", "1e300"):
            self.refused("calibrate", "--target-kl", target, "--out", self.path("no.profile"),
                         self.cache_path, says=[f"--target-kl: it is {target}"])

    def test_show(self):
        shown = self.sluice("profile", "show", "--json", self.profile).json()
        self.assertEqual((shown["id"], shown["kind"]), (self.id, "calibrated"))
        self.assertGreater(shown["contexts"], 0)
        self.assertTrue(all(level["bits_per_element"] > 0 for level in shown["levels"]))
        text = self.sluice("profile", "show", self.profile).out
        self.assertIn("calibrated, learnt from 3 contexts of", text)
        for block in text.split("\n\n")[1:]:
            self.assert_aligned(block.splitlines())
        self.assertEqual(self.sluice("inspect", "--json", self.profile).json()["kind"], "profile")

    def test_put_and_fetch(self):
        self.put(self.cache_path, "--profile", self.profile)
        listed = self.sluice("profile", "ls", "--json", "--server", self.address).json()
        self.assertEqual([entry["id"] for entry in listed["profiles"]], [self.id])
        fetch = ["--like", self.cache_path, "--check", self.cache_path]
        for given in ([], ["--profile", self.profile], ["--profile", self.id]):
            self.fetch(*fetch, *given)  # without it, it is found by the namespace
        self.put(self.cache_path)  # from now on there are two
        self.fetch(*fetch)
        self.fetch(*fetch, "--profile", self.id[:9])

    def test_check_against_another_context(self):
        """Values of the same distribution are within a calibrated level's bound, and not near."""
        self.put(self.cache_path, "--profile", self.profile)
        other = self.context("other.safetensors")
        result = self.fetch("--like", self.cache_path, "--check", other, "--json",
                            code=harness.FAILURE)
        chunks = result.json()["check"]["chunks"]
        self.assertTrue(any("another context" in chunk["doubt"] for chunk in chunks), str(result))

    def test_files(self):
        encoded = self.path("c.sluice")
        report = self.sluice("encode", "--json", *CHUNK, "--profile", self.profile,
                             self.cache_path, encoded).json()
        self.assertEqual([level["level"] for level in report["levels"]], ["0", "1", "2"])
        inspected = self.sluice("inspect", "--json", encoded).json()
        self.assertEqual((inspected["profile"]["id"], inspected["intact"]), (self.id, True))
        self.sluice("decode", encoded, self.out)
        self.server("put", encoded)
        self.fetch("--like", self.cache_path, "--check", self.cache_path)

    def start_daemon(self):
        program = os.environ.get("SLUICE_NODE", "")
        if not os.access(program, os.X_OK):
            self.skipTest(f"no daemon: {program or 'SLUICE_NODE is not set'}")
        socket = self.path("node.sock")
        self.path("node.toml").write_text(
            f"[node]\nprofile_cache_dir = '{self.path('node-profiles')}'\n")
        self.start("node", [program, "--server", self.address, "--socket", socket, "--config",
                            self.path("node.toml")], socket.exists)
        return socket

    def test_unusual_rate(self):
        """A profile that does not fit is told of; one that fits is not."""
        encoded = self.path("c.sluice")
        other = self.context("other.safetensors", eight_times)
        for cache, unusual in ((self.cache_path, 0), (other, 16)):
            told = "16 of 16 chunks need over 1.20 times the" if unusual else ""
            encode = self.sluice("encode", "--json", *CHUNK, "--profile", self.profile, cache,
                                 encoded)
            rate = encode.json()["rate"]
            self.assertEqual((rate["unusual_chunks"], rate["chunks"]), (unusual, 16), rate)
            inspect = self.sluice("inspect", "--json", encoded)
            self.assertEqual(inspect.json()["rate"], rate)
            self.assertEqual(sum(c["unusual_rate"] for c in inspect.json()["chunks"]), unusual)
            text = self.sluice("inspect", encoded)
            self.assertEqual(text.out.count("intact, unusual rate"), unusual)
            self.assertIn("bits/element at the finest lossy level, usually", text.out)
            put = self.put(cache, "--json", "--profile", self.profile)
            again = self.server("put", "--json", encoded)
            for result in (encode, inspect, text, put, again):
                self.assertEqual("unusual rate: " in result.err, bool(unusual), str(result))
                self.assertIn(told, result.err)
            self.assertEqual(put.json()["rate"], rate)
            self.assertEqual(again.json()["rate"], rate)
        self.fetch("--like", other, "--check", other)  # within its bound
        builtin = self.sluice("encode", "--json", *CHUNK, other, encoded)
        self.assertIsNone(builtin.json()["rate"])
        self.assertIsNone(self.sluice("inspect", "--json", encoded).json()["rate"])

    def test_unusual_rate_through_the_daemon(self):
        socket = self.start_daemon()
        other = self.context("other.safetensors", eight_times)
        put = ["put", "--node", socket, *CHUNK, "--profile", self.profile]
        self.assertNotIn("unusual rate", self.sluice(*put, self.cache_path).err)
        result = self.sluice(*put, "--json", other)
        self.assertEqual(result.json()["unusual_rate_chunks"], 16)
        self.assertIn("unusual rate: 16 chunks need over 1.20 times", result.err)
        stats = ["stats", "--node", socket]
        self.assertEqual(self.sluice(*stats, "--json").json()["unusual_rate_chunks"], 16)
        self.assertIn("16 saved chunks", self.sluice(*stats).out)

    def test_profile_that_is_lost(self):
        """Neither the server nor the daemon has it: everything is to be recomputed."""
        result = self.sluice("fetch", "--node", self.start_daemon(), *CHUNK, "--slo", 20000,
                             "--like", self.cache_path, "--profile", self.profile, self.out,
                             code=PARTIAL)
        self.assertEqual(result.out.count("recompute: not_stored"), 16)
        self.assertIn(f"profile {self.id} is not stored here", result.out)

    def test_through_the_daemon(self):
        socket = self.start_daemon()
        self.sluice("put", "--node", socket, *CHUNK, "--profile", self.profile, self.cache_path)
        fetch = ["fetch", "--node", socket, *CHUNK, "--slo", 20000, "--like", self.cache_path,
                 "--check", self.cache_path, self.out]
        self.sluice(*fetch, "--profile", self.profile)
        self.assertIn(f"stored with --profile {self.id[:12]}",
                      self.sluice(*fetch, code=PARTIAL).err)
        self.fetch("--like", self.cache_path, "--check", self.cache_path)


class CalibrateFilesTest(harness.CliTest):
    """Files that cannot be calibrated with, or written, are named before the work."""

    def setUp(self):
        super().setUp()
        self.caches = []
        for i in range(4):
            self.seed += 1
            self.caches.append(self.cache(f"in{i}.safetensors", tokens=256, heads=1))

    def refused_calibrate(self, *arguments, out="p.profile", **options):
        return self.refused("calibrate", "--out", self.path(out), *arguments, *self.caches,
                            **options)

    def test_sensitivities(self):
        file = self.path("s.json")
        for value, says in ((0, "too small"), (1e-300, "too small"), (1e300, "not in 0..1e+30"),
                            (-1, "no number >= 0")):
            file.write_text(json.dumps({"kl_per_variance": [[value, value]] * 2}))
            self.refused_calibrate("--sensitivity", file, says=["s.json: ", says])

    def test_sensitivities_that_are_not_json(self):
        file = self.path("s.json")
        for number in ("NaN", "1e400"):
            file.write_text('{"kl_per_variance": [[%s, 1], [1, 1]]}' % number)
            self.refused_calibrate("--sensitivity", file, says=["s.json: ", "is not JSON, or"])

    def test_same_context_twice(self):
        copy = self.path("copy.safetensors")
        copy.write_bytes(self.caches[1].read_bytes())
        for again in (self.caches[1], copy):
            self.refused_calibrate(again, says=["holds the same context as ", "each context once"])

    def test_another_model(self):
        def rename(cache):
            cache.metadata["model"] = "another"

        other = self.cache("other.safetensors", change=rename, tokens=256, heads=1)
        self.refused_calibrate(other, says=["is of model test-model", "others are of another"])

    def test_group_layers(self):
        self.refused_calibrate("--group-layers", 0, says=["--group-layers"])
        self.refused_calibrate("--group-layers", 3, says=["it is 3; the model has 2 layers"])

    def test_queries(self):
        def write(change):
            moments = [float(i % 17 == 0) for i in range(256)]
            change(moments)
            data = struct.pack("<256f", *moments)
            cache = cache_file.Cache(
                {f"layers.{i}.q_cov": ("F32", [1, 16, 16], data) for i in range(2)}, {})
            return cache.write(self.path("q.safetensors"))

        for at, value, says in ((0, -1, "[0][0] is negative"), (17, 3e38, "[1][1] is 3e+38"),
                                (1, 2, "[0][1] is 2, more than"), (33, float("nan"), "is nan")):
            queries = write(lambda moments: moments.__setitem__(at, value))
            self.refused_calibrate("--queries", queries,
                                   says=["q.safetensors: queries of layers.0.k, head 0, ", says])
        queries = write(lambda moments: moments.__setitem__(slice(None), [0] * 256))
        self.refused_calibrate("--queries", queries, says=["q.safetensors: ", "are all zero"])

    def test_output(self):
        for out, says in (("none/p.profile", "none/p.profile"), (".", "it is a folder")):
            for command in ("calibrate", "encode"):
                arguments = ["--out", self.path(out)] if command == "calibrate" else []
                end = [self.path(out)] if command == "encode" else []
                self.refused(command, *arguments, self.path("missing.safetensors"), *end,
                             says=[says])


class DamagedProfileTest(harness.CliTest):
    """Profiles that no chunk can be encoded with."""

    golden = Path(__file__).parents[1] / "golden"

    def test_found_when_read(self):
        for what in ("zero", "row_zero", "column_zero"):
            path = self.golden / "reject" / "profile" / f"calibrated_basis_{what}.bin"
            for command in (["profile", "show", path], ["inspect", path],
                            ["encode", "--profile", path, self.cache(), self.path("c.sluice")]):
                self.refused(*command, code=DAMAGED, says=[path.name, "it has no inverse"])

    def test_found_when_encoding(self):
        cache = self.cache(heads=1, dim=2, change=lambda cache: cache.metadata.update(
            rope_inv_freq="[0.5]"))
        profile = self.golden / "accept" / "profile" / "calibrated_basis_singular.bin"
        self.refused("encode", *CHUNK, "--profile", profile, cache, self.path("c.sluice"),
                     code=DAMAGED, says=["groups[0].basis of the profile is singular", "hint"])


class CalibrateStoredTest(harness.ServerTest):
    """Contexts on the server, named by their token ids, instead of files."""

    def setUp(self):
        super().setUp()
        self.temporary = self.path("tmp")
        self.temporary.mkdir()
        self.enterContext(mock.patch.dict(os.environ, TMPDIR=str(self.temporary)))
        self.files, self.ids = [], []
        for i in range(4):
            self.seed += 1
            self.files.append(self.cache(f"in{i}.safetensors", tokens=128, heads=1))
            ids = self.path(f"ids{i}")
            ids.write_text(cache_file.read(self.files[-1]).metadata["token_ids"])
            self.ids.append(ids)
        self.out = self.path("p.profile")

    def tearDown(self):
        self.assertEqual(list(self.temporary.iterdir()), [])
        super().tearDown()

    def calibrate(self, *contexts):
        return self.sluice("calibrate", "--json", "--server", self.address, "--namespace",
                           "test-model", "--out", self.out, *contexts).json()["profile_id"]

    def refused_calibrate(self, *arguments, **options):
        return self.refused("calibrate", "--server", self.address, "--out", self.out, *arguments,
                            **options)

    def test_same_as_from_files(self):
        for file in self.files:
            self.put(file, "--lossless")
        wanted = self.calibrate(*self.files)
        self.assertEqual(self.calibrate(*self.ids), wanted)
        self.assertEqual(self.calibrate(*self.files[:2], *self.ids[2:]), wanted)
        self.ids[0].write_text("\n" + self.ids[0].read_text().strip("[]").replace(",", "") + " 7")
        result = self.sluice("calibrate", "--server", self.address, "--model", "test-model", *CHUNK,
                             "--out", self.out, *self.ids)
        self.assertIn(wanted, result.out)
        self.assertIn("ids0: the last 1 tokens make no full chunk", result.err)

    def test_other_geometry(self):
        self.put(self.files[0], "--lossless")
        wide = self.cache("wide.safetensors", tokens=128, heads=1, dim=32)
        self.refused_calibrate("--namespace", "test-model", wide, self.ids[0],
                               says=["ids0: layers.0.k has head_dim 16, not 32 as in", "wide"])

    def test_what_is_not_there(self):
        name = ["--namespace", "test-model"]
        self.refused_calibrate(*name, *self.ids, says=["no namespace", "test-model"])
        self.put(self.files[0])
        self.refused_calibrate(*name, *self.ids, code=FAILURE,
                               says=["ids0: 8 of 8 chunks are stored without the lossless level",
                                     "sluice rm --server", "put --lossless"])
        self.refused_calibrate(*name, self.ids[1], code=FAILURE,
                               says=["ids1: 8 of 8 chunks are not stored in namespace",
                                     "sluice put --lossless --server"])
        self.refused_calibrate(self.ids[0], says=["ids0: ", "--model NAME or --namespace DIGEST"])
        self.assertFalse(self.out.exists())

    def test_no_room(self):
        self.put(self.files[0], "--lossless")
        with mock.patch.dict(os.environ, TMPDIR=str(self.path("none"))):
            self.refused_calibrate("--namespace", "test-model", self.ids[0], code=None,
                                   says=["ids0: cannot create", "none/sluice-"])

    def test_no_server(self):
        self.stop("sluiced")
        self.refused_calibrate("--namespace", "test-model", *self.ids, code=UNREACHABLE,
                               says=["hint"])


class LargeProfileTest(harness.ServerTest):
    """A profile over 1 MiB is not in the .sluice file but found by its id."""

    def setUp(self):
        super().setUp()
        self.cache_path = self.cache(change=large, tokens=16)
        self.encoded, self.out = self.path("c.sluice"), self.path("out.safetensors")
        result = self.sluice("encode", *CHUNK, "--lossless", self.cache_path, self.encoded)
        self.assertIn("is not in the file; it is kept in", result.err)
        report = self.sluice("inspect", "--json", self.encoded).json()
        self.id = report["profile"]["id"]
        self.users = self.path("user-cache") / "sluice" / "profiles"
        self.assertGreater((self.users / self.id).stat().st_size, 1 << 20)
        self.assertEqual(self.users.stat().st_mode & 0o777, 0o700)

    def decode(self, *arguments, **options):
        return self.sluice("decode", "--level", "lossless", *arguments, self.encoded, self.out,
                           **options)

    def test_decode(self):
        self.decode()
        self.assert_same_tensors(self.out, self.cache_path)
        file = self.path("p.profile")
        shutil.copy(self.users / self.id, file)
        damaged = bytearray(file.read_bytes())
        damaged[99] ^= 1
        (self.users / self.id).write_bytes(damaged)
        self.refused("decode", self.encoded, self.out,
                     says=["neither in the file nor in", "--profile FILE", "sluice profile get"])
        self.assertFalse((self.users / self.id).exists())
        self.decode("--profile", file)
        report = self.sluice("inspect", "--json", self.encoded).json()
        self.assertEqual((report["profile"], report["intact"]), ({"id": self.id}, True))
        self.assertEqual(report["level_bits"], {})

    def test_put_and_get(self):
        self.server("put", self.encoded)
        self.path("ids").write_text(cache_file.read(self.cache_path).metadata["token_ids"])
        shutil.rmtree(self.users)
        self.fetch("--like", self.cache_path, "--level", "lossless")
        self.assert_same_tensors(self.out, self.cache_path)
        self.fetch("--tokens", self.path("ids"), "--model", "test-model")
        self.assertTrue((self.users / self.id).exists())  # got by the namespace
        shutil.rmtree(self.users)
        self.sluice("profile", "get", "--server", self.address, self.id)
        self.decode()
        shutil.rmtree(self.users)
        self.server("put", self.encoded)  # the server has the profile, and the chunk
        self.server("rm", "test-model")
        self.refused("put", "--server", self.address, self.encoded,
                     says=["neither in the file nor in", "sluice profile get"])

    def test_through_the_daemon(self):
        program = os.environ.get("SLUICE_NODE", "")
        if not os.access(program, os.X_OK):
            self.skipTest(f"no daemon: {program or 'SLUICE_NODE is not set'}")
        socket, folder = self.path("node.sock"), self.path("node-profiles")
        self.path("node.toml").write_text(f"[node]\nprofile_cache_dir = '{folder}'\n")
        self.start("node", [program, "--server", self.address, "--socket", socket, "--config",
                            self.path("node.toml")], socket.exists)
        self.sluice("put", "--node", socket, *CHUNK, "--profile", self.id, "--lossless",
                    self.cache_path)
        self.assertTrue((folder / self.id).exists())
        fetch = ["fetch", "--node", socket, *CHUNK, "--slo", 20000, "--level", "lossless",
                 "--like", self.cache_path]
        self.sluice(*fetch, "--profile", self.users / self.id, self.out)
        self.assert_same_tensors(self.out, self.cache_path)
        self.refused("fetch", *fetch[1:], "--profile", "cd" * 32, self.out,
                     says=["not stored here", "sluice profile ls"])
        self.refused("put", "--node", self.path("none.sock"), *CHUNK, "--profile", self.id,
                     self.cache_path, code=UNREACHABLE, says=["start it with: sluice-node"])


if __name__ == "__main__":
    unittest.main()
