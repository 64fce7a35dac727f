#!/usr/bin/env python3
"""Commands that need no server: encode, decode, inspect, help."""
import json
import struct
import unittest

import cache_file
import harness
from harness import CHUNK, DAMAGED, OK, UNREACHABLE, USAGE

COMMANDS = "encode decode inspect put fetch explain simulate ls rm pin stats ping bench".split()


class HelpTest(harness.CliTest):
    def test_help_of_every_command(self):
        overview = self.sluice("--help").out
        self.assertIn("Exit codes:", overview)
        for command in COMMANDS:
            self.assertIn(f"  {command} ", overview)
            text = self.sluice(command, "--help").out
            self.assertIn("Examples:\n  sluice " + command, text)
            self.assertIn("--json", text)

    def test_bad_usage(self):
        self.refused(says=["subcommand", "try: sluice --help"])
        self.refused("frobnicate", says=["unknown command 'frobnicate'; commands: calibrate"])
        self.refused("profile", "list", says=["unknown command 'profile list'; commands: show",
                                              "try: sluice profile --help"])
        self.refused("profile", says=["try: sluice profile --help"])
        self.refused("fecth", says=["unknown command 'fecth'; did you mean 'fetch'?", "ping"])
        self.refused("--nonsense", says=["unknown option '--nonsense'"])
        self.refused("encode", says=["IN", "try: sluice encode --help"])
        self.refused("decode", "--level", "fine", "a", "b", says=["level"])
        self.refused("encode", "--chunk-tokens", "7", "a", "b", says=["chunk-tokens"])
        self.refused("ping", "--nonsense", says=["nonsense"])

    def test_bad_values(self):
        for arguments, says in (
                (["decode", "--level", "9", "a", "b"], "levels are 0..7 or lossless"),
                (["fetch", "--recompute", "all", "a"], '"all" is not none, suffix or any'),
                (["fetch", "--recompute", "3", "a"], "none, suffix or any"),
                (["fetch", "--slo", "soon", "a"], '"soon" is not a number'),
                (["fetch", "--slo", "1.5", "a"], "is not a whole number in 0..600000"),
                (["ping", "--timeout", "x"], '"x" is not a number'),
                (["rm", "x", "--idle", "-1"], "is not in 0.."),
                (["bench", "--dim", "127"], "127 is odd"),
                (["profile"], "subcommand"),
                (["profile", "show"], "PROFILE"),
                (["bench", "--profile", "b"], "--like")):
            with self.subTest(arguments):
                self.refused(*arguments, says=[says])

    def test_bad_addresses(self):
        for address in ("localhost", "localhost:", ":7420", "host:0", "host:65536", "host:70000x",
                        "::1", "[::1]", "unix:", "http://host:7420"):
            with self.subTest(address):
                self.refused("ping", "--server", address, says=["--server", "write "])
        for address in ("127.0.0.1:1", "[::1]:1", f"unix:{self.path('none')}"):
            with self.subTest(address):
                self.refused("ping", "--server", address, code=UNREACHABLE)

    def test_version(self):
        for flag in ("--version", "-v"):
            self.assertRegex(self.sluice(flag).out, r"^sluice \d+\.\d+\.\d+\n$")


class EncodeTest(harness.CliTest):
    def encode(self, path, *arguments, **options):
        return self.sluice("encode", *CHUNK, *arguments, path, self.path("c.sluice"), **options)

    def refused_input(self, change, *says, **shape):
        path = self.cache(change=change, **shape)
        self.refused("encode", *CHUNK, path, self.path("c.sluice"), says=says)
        self.assertFalse(self.path("c.sluice").exists())

    def round_trip(self, level="lossless", **shape):
        path = self.cache(**shape)
        self.encode(path, "--lossless")
        self.sluice("decode", "--level", level, self.path("c.sluice"), self.path("out.safetensors"))
        return path

    def test_report(self):
        lines = self.encode(self.cache()).out.splitlines()
        self.assertEqual(lines[0].split()[:2], ["level", "bytes"])
        self.assertEqual([line.split()[0] for line in lines[1:4]], ["0", "1", "2"])
        self.assert_aligned(lines[:4], right=2)
        self.assertIn("5 chunks, 80 tokens", lines[-1])

    def test_report_for_machines(self):
        report = self.encode(self.cache(), "--lossless", "--json").json()
        levels = [level["level"] for level in report["levels"]]
        self.assertEqual(levels, ["0", "1", "2", "lossless"])
        for level in report["levels"]:
            self.assertLessEqual(level["mean_error"], level["max_error"])
            self.assertLessEqual(level["max_error"], level["error_bound"])
        sizes = [level["bytes"] for level in report["levels"][:3]]
        self.assertEqual(sizes, sorted(sizes))

    def test_lossless_is_bit_exact_for_every_dtype(self):
        for dtype in ("BF16", "F16", "F32", "F8_E4M3", "F8_E5M2"):
            with self.subTest(dtype):
                path = self.round_trip(dtype=dtype, tokens=37)
                self.assert_same_tensors(path, self.path("out.safetensors"))

    def test_metadata_is_restored(self):
        path = self.round_trip(level="1")
        got, want = cache_file.read(self.path("out.safetensors")), cache_file.read(path)
        self.assertEqual(got.metadata, want.metadata | {"sluice_level": "1"})
        self.assertNotEqual(got.tensors, want.tensors)

    def test_last_partial_chunk_is_encoded(self):
        self.encode(self.cache(tokens=37))
        chunks = self.sluice("inspect", "--json", self.path("c.sluice")).json()["chunks"]
        self.assertEqual([chunk["num_tokens"] for chunk in chunks], [16, 16, 5])

    def test_opaque_and_latent_planes(self):
        def change(cache):
            cache.tensors = {
                "layers.0.latent": ("BF16", [1, 40, 24], cache_file.values(1, "BF16", 960)),
                "layers.1.opaque": ("U8", [1, 40, 10], bytes(range(200)) * 2)}
            cache.metadata |= {"rope_dim": "8", "rope_layout": "interleaved"}
        path = self.round_trip(tokens=40, change=change)
        self.assert_same_tensors(path, self.path("out.safetensors"))

    def test_nan_and_inf_are_kept(self):
        def change(cache):
            dtype, shape, data = cache.tensors["layers.1.v"]
            spoilt = struct.pack("<HHH", 0x7fc0, 0x7f80, 0xff80)  # NaN, Inf, -Inf
            cache.tensors["layers.1.v"] = (dtype, shape, spoilt + data[len(spoilt):])
        path = self.cache(change=change, tokens=16)
        self.assertIn("layers.1.v holds NaN or Inf", self.encode(path).err)
        self.sluice("decode", "--level", "0", self.path("c.sluice"), self.path("out.safetensors"))
        got, want = cache_file.read(self.path("out.safetensors")), cache_file.read(path)
        self.assertEqual(got.tensors["layers.1.v"], want.tensors["layers.1.v"])

    def test_notes_with_verbose(self):
        def change(cache):
            del cache.metadata["rope_theta"], cache.metadata["rope_layout"]
        path = self.cache(change=change)
        self.assertEqual(self.encode(path).err, "")
        self.assertIn("not rotated", self.encode(path, "-v").err)

    def test_layout_without_theta(self):
        path = self.cache(change=lambda cache: cache.metadata.pop("rope_theta"))
        self.assertIn("stored as they are, not rotated back", self.encode(path).err)

    def test_output_over_input(self):
        path, link = self.cache(), self.path("link")
        link.symlink_to(path)
        before = path.read_bytes()
        for out in (path, link, self.folder / "." / path.name):
            self.refused("encode", path, out, says=["replace the input"])
        encoded = self.path("c.sluice")
        self.encode(path)
        self.refused("decode", encoded, encoded, says=["replace the input"])
        tokens = self.path("ids")
        tokens.write_text("1 2 3")
        for arguments in (["--like", path, path], ["--like", path, "--check", encoded, encoded],
                          ["--tokens", tokens, tokens]):
            self.refused("fetch", *arguments, says=["replace the input"])
        self.assertEqual(path.read_bytes(), before)
        self.sluice("inspect", encoded)

    def test_without_token_ids_or_model(self):
        self.encode(self.cache(change=lambda cache: cache.metadata.pop("token_ids")))
        path = self.cache(change=lambda cache: cache.metadata.pop("model"))
        self.refused("encode", path, self.path("d.sluice"), says=["--model"])
        self.sluice("encode", "--model", "mine", path, self.path("d.sluice"))

    def test_missing_layer(self):
        def change(cache):
            del cache.tensors["layers.1.k"], cache.tensors["layers.1.v"]
        self.refused_input(change, "layers.1", "layers.2", layers=3)
        self.refused_input(lambda cache: cache.tensors.pop("layers.1.v"), "layers.1.v", "missing")

    def test_wrong_shapes(self):
        def reshape(name, shape):
            def change(cache):
                dtype, _, data = cache.tensors[name]
                cache.tensors[name] = (dtype, shape, data)
            return change
        self.refused_input(reshape("layers.1.k", [2 * 80, 16]), "layers.1.k", "shape [160, 16]")
        self.refused_input(reshape("layers.1.v", [1, 160, 16]), "layers.1.v", "160 tokens", "80")
        self.refused_input(reshape("layers.0.k", [0, 80, 16]), "layers.0.k")

    def test_wrong_dtype(self):
        def change(cache):
            _, shape, _ = cache.tensors["layers.0.v"]
            cache.tensors["layers.0.v"] = ("I32", shape, bytes(4 * 2 * 80 * 16))
        self.refused_input(change, "layers.0.v", "dtype I32", "BF16")

    def test_wrong_metadata(self):
        for key, value, says in (("token_ids", "[1, 2]", "2 ids"), ("token_ids", "[1, x]", "x"),
                                 ("rope_theta", "much", "rope_theta"),
                                 ("rope_layout", "zigzag", "rope_layout"),
                                 ("rope_dim", "17", "rope_dim"),
                                 ("rope_inv_freq", "[1, null]", "rope_inv_freq"),
                                 ("sluice_missing_chunks", "[1]", "missing")):
            with self.subTest(key=key, value=value):
                self.refused_input(lambda cache: cache.metadata.update({key: value}), says)

    def test_unknown_tensor(self):
        def change(cache):
            cache.tensors["layers.0.key"] = cache.tensors["layers.0.k"]
        self.refused_input(change, "layers.0.key", "unknown")

    def test_truncated_and_foreign_files(self):
        path = self.cache()
        path.write_bytes(path.read_bytes()[:-100])
        self.refused("encode", path, self.path("c.sluice"), says=["layers.1.v", "truncated"])
        path.write_bytes(path.read_bytes()[:50])
        self.refused("encode", path, self.path("c.sluice"), says=["truncated"])
        path.write_bytes(b"hello")
        self.refused("encode", path, self.path("c.sluice"), says=["not a safetensors file"])
        path.write_bytes(b"")
        self.refused("encode", path, self.path("c.sluice"))
        self.refused("encode", self.path("none"), self.path("c.sluice"), says=["cannot open"])
        self.refused("encode", self.cache(), self.path("no/such/folder"),
                     says=[f"cannot create {self.path('no/such/folder')}: "])
        self.encode(self.cache())
        self.refused("encode", self.path("c.sluice"), self.path("d.sluice"),
                     says=["this is a .sluice file; decode it first"])

    def test_wrong_profile(self):
        self.path("profile").write_bytes(b"not a profile at all, but long enough to be read")
        out = self.path("c.sluice")
        self.refused("encode", "--profile", self.path("profile"), self.cache(), out,
                     says=["not a profile"])
        self.refused("encode", "--profile", self.path("none"), self.cache(), out,
                     says=["cannot open", "give a profile's file, or an id"])
        for word in ("none", "xyz", "123"):
            self.refused("encode", "--profile", word, self.cache(), out,
                         says=[f'profile "{word}"', "no such file, and no id", "sluice profile ls"])
        self.refused("encode", "--profile", "ab" * 32, self.cache(), out,
                     says=["ab" * 32, "is not here", "sluice profile get"])
        self.refused("encode", "--profile", "abcd", self.cache(), out,
                     says=["no profile's id begins with abcd"])


class DecodeAndInspectTest(harness.CliTest):
    def setUp(self):
        super().setUp()
        self.encoded = self.path("c.sluice")
        self.sluice("encode", *CHUNK, self.cache(), self.encoded)

    def test_levels(self):
        out = self.path("out.safetensors")
        for level in "012":
            report = self.sluice("decode", "--json", "--level", level, self.encoded, out).json()
            self.assertEqual((report["level"], report["tokens"]), (level, 80))
        self.assertIn("level 2", self.sluice("decode", self.encoded, out).out)
        self.refused("decode", "--level", "lossless", self.encoded, out, says=["--lossless"])
        self.refused("decode", "--level", "5", self.encoded, out, says=["level 5"])

    def test_not_a_sluice_file(self):
        self.refused("decode", self.cache(), self.path("out"), says=["not a .sluice file"])
        self.refused("inspect", self.cache(), says=["not a .sluice file"])

    def test_inspect(self):
        report = self.sluice("inspect", "--json", self.encoded).json()
        self.assertEqual(report["kind"], "context")
        self.assertTrue(report["intact"])
        self.assertEqual(list(report["level_bytes"]), ["0", "1", "2"])
        self.assertEqual(len(report["chunks"]), 5)
        for level, total in report["level_bytes"].items():
            self.assertEqual(total, sum(chunk["level_bytes"][level] for chunk in report["chunks"]))
            self.assertAlmostEqual(report["level_bits"][level], 8 * total / report["elements"])
        self.assertEqual(report["elements"], 2 * 2 * 2 * 80 * 16)
        self.assertEqual(report["namespace"]["model"], "test-model")
        text = self.sluice("inspect", self.encoded).out
        self.assertIn("test-model", text)
        table = text.split("\n\n")[1].splitlines()
        self.assert_aligned(table)
        self.assertTrue(all(line.endswith("intact") for line in table[1:]), text)

    def test_damage_is_found_everywhere(self):
        """Flips a bit in many places: never accepted, never a crash."""
        data = self.encoded.read_bytes()
        damaged = self.path("damaged.sluice")
        for step in range(40):
            position = step * (len(data) - 1) // 39
            with self.subTest(position=position):
                damaged.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) +
                                    data[position + 1:])
                result = self.sluice("inspect", damaged, code=None)
                self.assertIn(result.code, (harness.FAILURE, USAGE, DAMAGED), str(result))
                if position > 16:
                    self.assertEqual(result.code, DAMAGED, str(result))
                self.assertNotEqual(
                    self.sluice("decode", damaged, self.path("out"), code=None).code, OK)

    def test_one_damaged_chunk_is_named(self):
        data = bytearray(self.encoded.read_bytes())
        data[-1] ^= 1
        self.encoded.write_bytes(data)
        result = self.sluice("inspect", "--json", self.encoded, code=DAMAGED)
        intact = [chunk["intact"] for chunk in result.json()["chunks"]]
        self.assertEqual(intact, [True] * 4 + [False])
        self.refused("decode", self.encoded, self.path("out"), code=DAMAGED, says=["chunk 4"])
        self.assertIn("intact chunks only, 4 of 5",
                      self.sluice("inspect", self.encoded, code=DAMAGED).out)

    def test_chunks_of_another_file(self):
        other = self.path("other.sluice")
        self.sluice("encode", *CHUNK, "--model", "elsewhere1", self.cache(), other)
        chunks = self.sluice("inspect", "--json", other).json()["chunks"]
        size = sum(chunk["bytes"] for chunk in chunks)
        self.encoded.write_bytes(self.encoded.read_bytes()[:-size] + other.read_bytes()[-size:])
        for command in (["inspect", self.encoded], ["decode", self.encoded, self.path("out")]):
            result = self.refused(*command, code=DAMAGED,
                                  says=["chunk 0: namespace_digest is not the file's"])
            self.assertNotIn("chunk 0: chunk 0", result.err)

    def test_damage_in_the_lossless_level_is_named(self):
        self.sluice("encode", *CHUNK, "--lossless", self.cache(), self.encoded)
        data = bytearray(self.encoded.read_bytes())
        data[-1] ^= 1
        self.encoded.write_bytes(data)
        out = self.path("out.safetensors")
        for command in (["inspect", self.encoded], ["decode", self.encoded, out]):
            self.refused(*command, code=DAMAGED, says=["checksum of level lossless, group"])

    def test_another_version(self):
        data = bytearray(self.encoded.read_bytes())
        data[8:10] = b"\x63\x00"  # after the magic
        self.encoded.write_bytes(data)
        self.refused("inspect", self.encoded, says=["version 99"])
        self.refused("decode", self.encoded, self.path("out"), says=["version 99"])

    def test_profile_is_inside(self):
        """A small profile is in the file; another one would not be it."""
        id_ = self.sluice("inspect", "--json", self.encoded).json()["profile"]["id"]
        self.assertFalse(self.path("user-cache").exists())
        self.refused("profile", "show", id_, says=["is not here", "sluice profile get"])

    def test_truncated(self):
        data = self.encoded.read_bytes()
        for size in (9, 40, len(data) // 2, len(data) - 1):
            self.encoded.write_bytes(data[:size])
            self.refused("inspect", self.encoded, code=DAMAGED)
            self.refused("decode", self.encoded, self.path("out"), code=DAMAGED)

    def test_unusual_strings(self):
        """Metadata survives, and the JSON output stays JSON."""
        def change(cache):
            cache.metadata["note"] = "\u00e9\u0001"
        self.sluice("encode", self.cache(change=change), self.encoded)
        data = self.encoded.read_bytes()
        self.assertIn("\u00e9".encode(), data)
        self.assertEqual(self.sluice("inspect", "--json", self.encoded).json()["metadata"]["note"],
                         "\u00e9\u0001")
        json.loads(self.sluice("inspect", "--json", self.encoded).out)


if __name__ == "__main__":
    unittest.main()
