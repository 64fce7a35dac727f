#!/usr/bin/env python3
"""Records of loads: fetch --record, explain, simulate."""
import os
import unittest
import xml.etree.ElementTree
from pathlib import Path

import harness
from harness import CHUNK, DAMAGED, FAILURE, PARTIAL, UNREACHABLE, USAGE

SIMULATE = ("simulate", "--tokens", "8192")
PREFIX = 24  # bytes of a file before the message
GOLDEN = Path(__file__).resolve().parents[1] / "golden/accept/load_record/example.bin"


class SimulateTest(harness.CliTest):
    def simulate(self, *arguments, **options):
        return self.sluice(*SIMULATE, *arguments, **options)

    def test_fast_link(self):
        report = self.simulate("--trace", "constant:8000", "--slo", 2000, "--json").json()
        self.assertFalse(report["missed_slo"])
        self.assertEqual(report["advice"], "")
        self.assertEqual({chunk["level"] for chunk in report["chunks"]}, {"4"})
        self.assertTrue(report["program"].startswith("sluice "))
        self.assertEqual(len(report["chunks"]), 32)
        self.assertEqual((report["loss"], report["wasted_bytes"]), (0.0005, 0))
        timeline = report["timeline"]
        received = sum(timeline["arrived_bytes_per_s"]) * timeline["column_ms"] / 1000
        self.assertAlmostEqual(received / report["received_bytes"], 1, places=6)
        finest = timeline["reached"][-1]
        self.assertEqual((finest["level"], sum(finest["chunks"])), ("4", 32))
        for link, arrived in zip(timeline["link_bytes_per_s"], timeline["arrived_bytes_per_s"]):
            self.assertLessEqual(arrived, link * (1 + 1e-6))

    def test_slow_link(self):
        text = self.simulate("--trace", "constant:50", "--slo", 500).out
        self.assertIn("SLO missed", text)
        self.assertIn("The smallest level of all chunks is 67.1 MB", text)
        self.assertIn("an engine that computes meanwhile", text)

    def test_engine_keeps_the_slo(self):
        for engine in ("none", "suffix", "bidirectional", "any"):
            with self.subTest(engine):
                result = self.simulate("--trace", "constant:100", "--slo", 1500, "--json",
                                       "--recompute", engine)
                report = result.json()
                self.assertEqual(report["recompute"], engine)
                self.assertEqual(report["missed_slo"], engine == "none")
                beside = sum(report["timeline"]["engine_share"])
                self.assertEqual(beside > 0, engine == "bidirectional")
                self.assertNotRegex(result.out, r"\d\.\d{10}", "more digits than mean anything")

    def test_traces(self):
        steps, slots = self.path("steps.txt"), self.path("slots")
        steps.write_text("# step_ms: 100\n800\n8 # almost nothing\n")
        slots.write_text("".join(f"{ms}\n" * 10 for ms in range(1, 100)))  # 10 * 1500 bytes per ms
        for trace in (steps, f"mahimahi:{slots}"):
            first = self.simulate("--trace", trace, "--slo", 1000, "--seed", 3, "--json")
            again = self.simulate("--trace", trace, "--slo", 1000, "--seed", 3, "--json")
            self.assertEqual(first.out, again.out)
        rates = {}
        for seed in range(8):
            report = self.simulate("--trace", steps, "--slo", 1000, "--seed", seed, "--json").json()
            rates[report["timeline"]["link_bytes_per_s"][0]] = seed
        self.assertGreater(len(rates), 1, "no seed starts elsewhere")

    def test_bad_input(self):
        bad = self.path("bad.txt")
        bad.write_text("100\nfast\n")
        large = self.path("large.txt")
        large.touch()
        os.truncate(large, (64 << 20) + 1)
        for arguments, says in ((["--trace", "constant:fast"], "is no rate"),
                                (["--trace", "constant:-1"], "is no rate"),
                                (["--trace", self.path("none")], "cannot open"),
                                (["--trace", bad], "bad.txt: trace, line 2"),
                                (["--trace", bad, "--recompute", "all"], "is not none, suffix"),
                                (["--trace", "constant:1", "--chunk-tokens", 7], "chunk-tokens"),
                                (["--trace", bad, "--svg", bad], "would replace the input"),
                                (["--trace", "constant:1", "--svg", "x", "--record", "x"],
                                 "name the same file"),
                                (["--trace", "/dev/zero"], "is a device"),
                                (["--trace", large], "has over 67108864 bytes"),
                                (["--trace", bad, "--seed", "-1"], "--seed"),
                                ([], "--trace")):
            with self.subTest(arguments):
                self.refused(*SIMULATE, "--slo", 100, *arguments, says=[says])
        self.refused("simulate", "--trace", "constant:1", "--slo", 1, "--tokens", 1 << 22,
                     "--chunk-tokens", 16, says=["--tokens: more than 16384 chunks"])

    def test_profile(self):
        """Sizes are those of the profile: here of few elements, built in."""
        caches = []
        for i in range(3):
            self.seed += 1
            caches.append(self.cache(f"{i}.safetensors", tokens=64))
        profile = self.path("m.profile")
        self.sluice("calibrate", *CHUNK, "--out", profile, *caches)
        with_profile = self.simulate("--trace", "constant:1000", "--slo", 500, "--profile", profile,
                                     "--json").json()
        shown = self.sluice("profile", "show", profile, "--json").json()
        finest = shown["levels"][-1]["bits_per_element"]
        elements = sum(plane["num_heads"] * plane["head_dim"] for plane in shown["planes"])
        self.assertAlmostEqual(with_profile["bytes"] / (finest * elements * 8192 / 8), 1, places=2)

    def test_drawing(self):
        svg = self.path("load.svg")
        self.simulate("--trace", "constant:200", "--slo", 500, "--recompute", "bidirectional",
                      "--svg", svg)
        drawing = xml.etree.ElementTree.parse(svg).getroot()
        self.assertEqual(drawing.tag, "{http://www.w3.org/2000/svg}svg")
        texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
        for word in ("SLO", "engine", "the engine computes", "level 0", "32 chunks", "0 ms",
                     "the link carries", "arrived", "estimate (dashed)"):
            self.assertIn(word, texts)
        self.assertNotIn("level 4", texts, "a level that nothing reached")

    def test_legend(self):
        text = self.simulate("--trace", "constant:200", "--slo", 500).out
        legend = text[text.index("|\n  rates"):].split("\n\n")[0]
        for words in ("# 25.0 MB/s", "levels: ", "^ is the SLO, 500 ms"):
            self.assertIn(words, legend)
        self.assertNotIn("engine", legend)
        self.assertNotIn("x is", legend)
        fast = self.simulate("--trace", "constant:8000", "--slo", 9000).out
        self.assertIn("x is ten or more", fast)


class ExplainTest(harness.CliTest):
    def record(self, *arguments, slo=500):
        path = self.path("it.load")
        self.sluice(*SIMULATE, "--slo", slo, "--trace", "constant:300", "--record", path,
                    *arguments)
        return path

    def test_explains_a_simulation(self):
        path = self.record("--recompute", "bidirectional")
        text = self.sluice("explain", path).out
        for words in ("load     simulation", "SLO      500 ms", "can compute: bidirectional",
                      "base of every chunk first", "^ is the SLO", "replay: all decisions follow",
                      "recompute, computed"):
            self.assertIn(words, text)
        lines = text.splitlines()
        title = next(i for i, line in enumerate(lines) if line.startswith("chunk  "))
        self.assert_aligned(lines[title:title + 33])
        decisions = self.sluice("explain", "--replay", path).out
        self.assertIn("-> ask for chunk 31 step 0", decisions)
        self.assertIn("-> the load is over", decisions)
        report = self.sluice("explain", "--json", path).json()
        self.assertTrue(report["replay"]["same"])
        self.assertEqual(len(report["chunks"]), 32)
        self.assertEqual(report["chunks"][31]["asked_ms"], 0)

    def test_damaged(self):
        path = self.record()
        whole = path.read_bytes()
        broken = self.path("broken.load")
        middle = len(whole) // 2
        for damaged in (whole[:-1], whole[:PREFIX], b"", whole + b"x",
                        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1:]):
            broken.write_bytes(damaged)
            self.refused("explain", broken, code=DAMAGED, says=["broken.load: load record"])
        broken.write_bytes(whole[:8] + b"\x09" + whole[9:])
        self.refused("explain", broken, says=["version 9"])
        self.refused("explain", self.cache(), code=USAGE, says=["this is no load record"])
        self.refused("explain", self.path("none"), says=["cannot open"])

    def test_other_decisions(self):
        """A record that is whole and says what no planner decides: made for the format's tests."""
        result = self.refused("explain", GOLDEN, code=FAILURE, says=["replay differs", "hint"])
        self.assertIn("replay differs: event 0", result.out)
        report = self.sluice("explain", "--json", GOLDEN, code=FAILURE).json()
        self.assertFalse(report["replay"]["same"])


class FetchRecordTest(harness.ServerTest):
    def test_fetch_and_explain(self):
        path, record = self.cache(), self.path("it.load")
        self.put(path)
        self.fetch("--like", path, "--record", record)
        text = self.sluice("explain", record).out
        self.assertIn(f"server     {self.address}", text)
        self.assertIn("5 of 5 chunks loaded (level 2: 5)", text)
        self.assertIn("replay: all decisions follow", text)
        report = self.sluice("explain", "--json", record).json()
        self.assertEqual((report["load_id"], report["missed_slo"]), ("sluice-fetch", False))
        self.assertEqual(report["bytes"], sum(chunk["bytes"] for chunk in report["chunks"]))
        self.assertTrue(report["program"].startswith("sluice "))
        os.unlink(record)
        for level in ("0", "lossless"):
            self.fetch("--like", path, "--record", record, "--level", level, code=None)
            self.sluice("explain", record)

    def test_nothing_stored_and_nobody_there(self):
        path, record = self.cache(), self.path("it.load")
        self.fetch("--like", path, "--record", record, code=PARTIAL)
        self.assertIn("not_stored: 5", self.sluice("explain", record).out)
        self.stop("sluiced")
        self.fetch("--like", path, "--record", record, code=UNREACHABLE)
        text = self.sluice("explain", record).out
        self.assertIn("server_unavailable: 5", text)
        self.assertIn("The load ended before anything was asked for", text)
        self.assertIn("replay: nothing was decided", text)


if __name__ == "__main__":
    unittest.main()
