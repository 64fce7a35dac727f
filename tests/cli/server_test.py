#!/usr/bin/env python3
"""Commands that talk to a server or a node daemon."""
import json
import os
import signal
import subprocess
import threading
import unittest

import cache_file
import harness
from harness import CHUNK, FAILURE, PARTIAL, UNREACHABLE, USAGE

NOBODY = "127.0.0.1:1"  # a port where nothing listens


class UnreachableTest(harness.CliTest):
    def test_no_server(self):
        path, out = self.cache(), self.path("out.safetensors")
        tokens = self.path("tokens")
        tokens.write_text("1 2 3")
        for command in (["ping"], ["ls"], ["ls", "x"], ["rm", "x"], ["pin", "x"], ["stats"],
                        ["put", *CHUNK, path], ["bench", "--tokens", "256", "--layers", "1"],
                        ["fetch", *CHUNK, "--slo", "2000", "--like", path, out],
                        ["fetch", "--tokens", tokens, "--model", "x", out]):
            with self.subTest(command[0]):
                result = self.refused(*command, "--server", NOBODY, code=UNREACHABLE)
                self.assertIn("hint", result.err)
        self.assertFalse(out.exists())

    def test_no_daemon(self):
        socket = self.path("none.sock")
        self.refused("stats", "--node", socket, code=UNREACHABLE, says=["sluice-node"])
        self.refused("put", *CHUNK, "--node", socket, self.cache(), code=UNREACHABLE,
                     says=["start it with: sluice-node"])


class PutAndFetchTest(harness.ServerTest):
    def test_put_twice(self):
        path = self.cache()
        table = self.put(path).out.splitlines()
        self.assert_aligned(table[:-1])
        self.assertTrue(all(line.endswith("  stored") for line in table[1:-1]), table)
        report = self.put(path, "--json").json()
        self.assertTrue(all(chunk["already_stored"] for chunk in report["chunks"]))
        self.assertEqual((report["stored_tokens"], report["sent_bytes"]), (80, 0))

    def test_lossless_over_lossy(self):
        """What is stored without the lossless level stays so: not a success."""
        path, encoded = self.cache(), self.path("c.sluice")
        self.put(path)
        self.sluice("encode", *CHUNK, "--lossless", path, encoded)
        for arguments in (["--lossless", path], [encoded]):
            self.refused("put", "--server", self.address, *CHUNK, *arguments, code=FAILURE,
                         says=["5 chunks are stored without the lossless level", "sluice rm"])
        self.server("rm", "test-model")
        self.put(path, "--lossless")
        self.put(path, "--lossless")
        table = self.put(path).out.splitlines()
        self.assertEqual([line.split()[2:4] for line in table[1:6]], [["0", "B"]] * 5)

    def test_contradicting_flags(self):
        path, encoded = self.cache(), self.path("c.sluice")
        self.sluice("encode", *CHUNK, path, encoded)
        put = ["put", "--server", self.address]
        self.refused(*put, "--chunk-tokens", 64, encoded, says=["chunks of 16 tokens, not 64"])
        self.refused(*put, "--lossless", encoded, says=["no lossless level"])
        self.sluice(*put, encoded)
        self.path("ids").write_text(cache_file.read(path).metadata["token_ids"])
        fetch = ["fetch", "--server", self.address, "--tokens", self.path("ids"), "--namespace",
                 "test-model"]
        out = self.path("out.safetensors")
        self.refused(*fetch, "--chunk-tokens", 64, out, says=["chunks of 16 tokens, not 64"])
        self.refused(*fetch, "--tenant", "other", out, says=["--namespace"])
        self.sluice(*fetch, "--slo", 20000, out)

    def test_partial_chunk_is_left_out(self):
        path = self.cache(tokens=37)
        result = self.put(path, "--json", "--lossless")
        self.assertEqual(result.json()["left_out_tokens"], 5)
        self.assertIn("last 5 of 37 tokens", result.err)
        self.fetch("--like", path, "--level", "lossless")
        got, want = cache_file.read(self.path("out.safetensors")), cache_file.read(path)
        self.assertEqual(got.tensors["layers.0.k"][1], [2, 32, 16])
        self.assertEqual(json.loads(got.metadata["token_ids"]),
                         json.loads(want.metadata["token_ids"])[:32])

    def test_cannot_be_put(self):
        path = self.cache(change=lambda cache: cache.metadata.pop("token_ids"))
        self.refused("put", "--server", self.address, *CHUNK, path, says=["token_ids"])
        self.refused("put", "--server", self.address, self.cache(), says=["no full chunk of 256"])

    def test_fetch_table_and_check(self):
        path = self.cache()
        self.put(path)
        result = self.fetch("--like", path, "--check", path)
        table = result.out.splitlines()
        self.assertEqual(table[0].split(),
                         ["chunk", "level", "bytes", "time", "throughput", "outcome"])
        self.assert_aligned(table[:6])
        self.assertTrue(all(line.endswith("loaded") for line in table[1:6]), result.out)
        self.assertIn("5 of 5 loaded chunks within the bound", table[-1])
        metadata = cache_file.read(self.path("out.safetensors")).metadata
        self.assertEqual(json.loads(metadata["sluice_level"]), ["2"] * 5)
        self.assertEqual(json.loads(metadata["sluice_missing_chunks"]), [])
        self.assertEqual(json.loads(metadata["sluice_token_ranges"]), [[0, 80]])

    def test_exact_levels(self):
        path = self.cache()
        self.put(path, "--lossless")
        for level in ("0", "1", "2", "lossless"):
            report = self.fetch("--like", path, "--check", path, "--level", level, "--json").json()
            self.assertEqual({chunk["level"] for chunk in report["chunks"]}, {level})
            self.assertTrue(report["check"]["ok"])
        self.assert_same_tensors(path, self.path("out.safetensors"))

    def test_check_finds_another_original(self):
        path = self.cache()
        self.put(path)
        def change(cache):
            dtype, shape, data = cache.tensors["layers.1.k"]
            cache.tensors["layers.1.k"] = (dtype, shape, data[::-1])
        other = self.cache("other.safetensors", change=change)
        result = self.fetch("--like", path, "--check", other, code=FAILURE)
        self.assertIn("layers.1.k", result.out)
        self.assertIn("differs", result.err)

    def test_sluice_file(self):
        """A .sluice file is put as it is, also under another tenant."""
        path, encoded = self.cache(), self.path("c.sluice")
        self.sluice("encode", *CHUNK, "--lossless", path, encoded)
        self.put(encoded)
        self.fetch("--like", path, "--level", "lossless", "--check", path)
        self.fetch("--like", path, "--tenant", "other", code=PARTIAL)
        self.put(encoded, "--tenant", "other")
        self.fetch("--like", path, "--tenant", "other", "--level", "lossless", "--check", path)

    def test_by_tokens(self):
        path = self.cache()
        self.put(path, "--lossless")
        ids = cache_file.read(path).metadata["token_ids"]
        for name, text in (("ids.json", ids), ("ids.txt", ids.strip("[]").replace(", ", "\n"))):
            self.path(name).write_text(text)
            self.fetch("--tokens", self.path(name), "--model", "test-model", "--level", "lossless")
            self.assert_same_tensors(path, self.path("out.safetensors"))
        again = self.path("out.safetensors")
        self.sluice("encode", again, self.path("c.sluice"))  # its metadata is complete
        for arguments, says in ((["--model", "other"], "nothing of model"), ([], "--model")):
            self.refused("fetch", "--server", self.address, *CHUNK, "--tokens",
                         self.path("ids.json"), *arguments, again, says=[says])
        self.path("ids.txt").write_text("1 2 three")
        self.refused("fetch", "--server", self.address, "--tokens", self.path("ids.txt"), "--model",
                     "test-model", again, says=["three"])
        self.refused("fetch", "--server", self.address, again, says=["--like or --tokens"])

    def test_missing_chunk(self):
        path = self.cache()
        self.put(path, "--lossless")
        chunks = self.server("ls", "--json", "test-model").json()["chunks"]
        self.assertEqual([chunk["start_token"] for chunk in chunks], [0, 16, 32, 48, 64])
        self.server("rm", "test-model", "--chunk", chunks[2]["chunk_key"])
        result = self.fetch("--like", path, "--level", "lossless", "--json", code=PARTIAL)
        self.assertEqual([chunk["reason"] for chunk in result.json()["chunks"]],
                         [None, None, "not_stored", None, None])
        got, want = cache_file.read(self.path("out.safetensors")), cache_file.read(path)
        self.assertEqual(json.loads(got.metadata["sluice_missing_chunks"]), [2])
        self.assertEqual(json.loads(got.metadata["sluice_token_ranges"]), [[0, 32], [48, 80]])
        ids = json.loads(want.metadata["token_ids"])
        self.assertEqual(json.loads(got.metadata["token_ids"]), ids[:32] + ids[48:])
        row = 16 * 2
        head = want.tensors["layers.0.v"][2][:80 * row]
        self.assertEqual(got.tensors["layers.0.v"][2][:64 * row], head[:32 * row] + head[48 * row:])
        self.refused("encode", self.path("out.safetensors"), self.path("x"), says=["missing"])

    def test_check_is_read_first(self):
        path, out = self.cache(), self.path("out.safetensors")
        self.put(path)
        fetch = ["fetch", "--server", self.address, *CHUNK, "--like", path, "--check"]
        self.refused(*fetch, self.path("none"), out, says=["cannot open"])
        self.refused(*fetch, self.cache("other", layers=1), out, says=["other shapes"])
        self.assertFalse(out.exists())

    def test_other_namespaces_are_named(self):
        path = self.cache()
        self.assertIn("nothing of model", self.fetch("--like", path, code=PARTIAL).err)
        self.put(path)
        result = self.server("fetch", "--chunk-tokens", 32, "--like", path, self.path("out"),
                             code=PARTIAL)
        self.assertIn("stored with --chunk-tokens 16", result.err)
        self.assertIn('tenant ""', self.fetch("--like", path, "--tenant", "x", code=PARTIAL).err)

    def test_nothing_stored(self):
        path = self.cache()
        result = self.fetch("--like", path, "--check", path, code=PARTIAL)
        self.assertEqual(result.out.count("recompute: not_stored"), 5)
        self.assertIn("check: nothing was loaded", result.out)
        self.assertNotIn("within the bound", result.out)


class AdminTest(harness.ServerTest):
    def test_ping(self):
        report = self.server("ping", "--json", "-c", 3).json()
        self.assertEqual(report["count"], 3)
        self.assertLessEqual(report["min_ms"], report["p99_ms"])
        self.assertIn("sluiced", self.server("ping").out)

    def test_ls(self):
        self.assertEqual(self.server("ls", "--json").json(), {"namespaces": []})
        self.put(self.cache(), "--tenant", "a")
        self.put(self.cache(), "--tenant", "b")
        all_of_them = self.server("ls", "--json").json()["namespaces"]
        self.assertEqual({info["tenant"] for info in all_of_them}, {"a", "b"})
        digest = all_of_them[0]["namespace"]
        self.assertEqual(len(self.server("ls", "--json", digest[:12]).json()["chunks"]), 5)
        self.assert_aligned(self.server("ls", digest).out.splitlines(), right=1)
        table = self.server("ls").out
        self.assertIn("profile", table.splitlines()[0])
        self.assertEqual(table.count(all_of_them[0]["profile_id"][:12]), 2)
        self.refused("ls", "--server", self.address, "test-model", says=["2 namespaces"])
        self.refused("ls", "--server", self.address, "nobody", says=["nobody"])

    def test_pin_and_rm(self):
        self.put(self.cache())
        self.assertEqual(self.server("ls", "test-model").out.count(" no\n"), 5)
        self.assertIn("5 chunks pinned", self.server("pin", "test-model").out)
        self.assertEqual(self.server("ls", "test-model").out.count(" yes\n"), 5)
        rm = self.server("rm", "--json", "test-model", code=FAILURE)
        self.assertIn("pin --off", rm.err)
        report = rm.json()
        self.assertEqual((report["deleted_chunks"], report["pinned_chunks"]), (0, 5))
        key = self.server("ls", "--json", "test-model").json()["chunks"][0]["chunk_key"]
        unpinned = self.server("pin", "--off", "--chunk", key, "test-model").out
        self.assertIn("1 chunk unpinned", unpinned)
        self.assertEqual(self.server("rm", "--json", "test-model").json()["deleted_chunks"], 1)
        self.server("rm", "--include-pinned", "test-model")
        self.refused("rm", "--server", self.address, "--chunk", "12", "test-model", code=USAGE)
        self.put(self.cache())
        for command in ("rm", "pin"):
            self.refused(command, "--server", self.address, "--chunk", "12" * 32, "test-model",
                         code=FAILURE, says=["no such chunk"])

    def test_stats(self):
        self.put(self.cache())
        stats = self.server("stats", "--json").json()
        self.assertEqual((stats["chunks"], stats["namespaces"]), (5, 1))
        self.assertIn("5 chunks in 1 namespace", self.server("stats").out)

    def test_bench(self):
        arguments = ["--contexts", 2, "--loads", 6, "-C", 2, "--slo", 20000, *CHUNK]
        report = self.server("bench", *arguments, "--like", self.cache(), "--json").json()
        self.assertEqual(report["loads"], 6)
        self.assertEqual(sum(report["chunks"].values()), 6 * 5)
        self.assertEqual(self.server("ls", "--json").json()["namespaces"][:1], [])
        made_up = ["--layers", 1, "--heads", 1, "--dim", 32, "--tokens", 64, "--level", "lossless"]
        self.assertIn("level lossless", self.server("bench", *arguments, *made_up).out)


class NodeTest(harness.ServerTest):
    def setUp(self):
        super().setUp()
        program = os.environ.get("SLUICE_NODE", "")
        if not os.access(program, os.X_OK):
            self.skipTest(f"no daemon program: {program or 'SLUICE_NODE is not set'}")
        self.socket = self.path("node.sock")
        self.start("sluice-node", [program, "--server", self.address, "--socket", self.socket],
                   lambda: self.socket.exists() and
                   self.sluice("stats", "--node", self.socket, code=None).code == 0)

    def test_put_and_fetch(self):
        path = self.cache(tokens=90)
        report = self.sluice(
            "put", *CHUNK, "--lossless", "--node", self.socket, "--json", path).json()
        self.assertEqual((report["stored_chunks"], report["left_out_tokens"]), (5, 10))
        fetch = ["fetch", *CHUNK, "--node", self.socket, "--like", path, "--check", path, "--slo",
                 20000, self.path("out.safetensors")]
        self.assertIn("5 of 5 loaded chunks within the bound", self.sluice(*fetch).out)
        for level in ("0", "lossless"):
            result = self.sluice(*fetch, "--level", level, "--json").json()
            self.assertTrue(result["check"]["ok"])
            self.assertEqual({chunk["level"] for chunk in result["chunks"]}, {level})
        stats = self.sluice("stats", "--node", self.socket, "--json").json()
        self.assertEqual((stats["loaded_chunks"], stats["pools"]), (15, 0))
        self.assertIn("breaker closed", self.sluice("stats", "--node", self.socket).out)
        log = self.path("sluice-node.log").read_text()
        self.assertEqual(log.count("event=load request=sluice-fetch "), 3, log)
        self.assertIn("event=save request=sluice-put ", log)

    def test_kept_transfers_are_told(self):
        """What the daemon has from the load before is not received again."""
        path = self.cache()
        self.put(path)
        fetch = ["fetch", *CHUNK, "--node", self.socket, "--like", path, "--slo", 20000]
        first = self.sluice(*fetch, self.path("a")).out.splitlines()[-1]
        again = self.sluice(*fetch, self.path("b")).out.splitlines()[-1]
        self.assertNotIn("received now", first)
        self.assertEqual(first.split(" in ")[0], again.split(" in ")[0])
        self.assertIn("of which 0 B were received now: the daemon had the rest", again)

    def test_other_namespaces_are_named(self):
        path, ids = self.cache(), self.path("ids")
        fetch = ["fetch", *CHUNK, "--node", self.socket, "--slo", 20000, "--like", path, ids]
        self.assertIn("nothing of model", self.sluice(*fetch, code=PARTIAL).err)
        self.put(path, "--tenant", "x")
        self.assertIn('tenant "x"', self.sluice(*fetch, code=PARTIAL).err)

    def test_stopped_daemon_is_not_waited_for(self):
        """It stops in the middle of a load: the command ends soon after the time limit."""
        path = self.cache()
        self.put(path)
        self.children["sluiced"].send_signal(signal.SIGSTOP)
        arguments = [os.environ["SLUICE_CLI"], "fetch", *CHUNK, "--node", self.socket, "--slo",
                     "10000", "--timeout", "3600", "--like", path,
                     self.path("out")]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as fetch:
            pause = threading.Event()
            while self.sluice("stats", "--node", self.socket, "--json").json()["loads"] == 0:
                self.assertIsNone(fetch.poll())
                pause.wait(0.005)
            self.children["sluice-node"].send_signal(signal.SIGSTOP)
            error = fetch.communicate(timeout=2 * harness.LIMIT_S)[1]
            self.assertEqual(fetch.returncode, UNREACHABLE, error)
            self.assertIn("no answer from the daemon", error)

    def test_server_is_gone(self):
        self.stop("sluiced")
        self.refused("put", *CHUNK, "--node", self.socket, self.cache(), code=UNREACHABLE,
                     says=[f"the storage server {self.address} did not answer the daemon"])

    def test_bad_usage(self):
        self.path("ids").write_text("1 2 3")
        self.refused("fetch", "--node", self.socket, "--tokens", self.path("ids"),
                     self.path("out"), says=["--like"])
        self.refused("fetch", "--node", self.socket, "--server", self.address, "--like",
                     self.cache(), self.path("out"), says=["--node"])
        self.refused("fetch", "--node", self.socket, "--record", self.path("it.load"), "--like",
                     self.cache(), self.path("out"), says=["--record", "record_dir"])
        encoded = self.path("c.sluice")
        self.sluice("encode", self.cache(), encoded)
        self.refused("put", "--node", self.socket, encoded, says=["--server"])


if __name__ == "__main__":
    unittest.main()
