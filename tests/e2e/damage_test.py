#!/usr/bin/env python3
"""Stored bytes that are not what was put: never wrong data, always a reason."""
import unittest

import harness
from harness import OK, PARTIAL

CHUNK = ("--chunk-tokens", 64)
SHAPE = {"tokens": 256, "layers": 2, "heads": 2, "head_dim": 64}
LOSSLESS = ("--level", "lossless")
NO_CACHE = "[cache]\nlimit = 0\n"


class DamageTest(harness.EndToEnd):
    def setUp(self):
        super().setUp()
        self.input = self.cache(**SHAPE)
        self.store = self.server(config=NO_CACHE)
        self.put(self.store, self.input, "--lossless", *CHUNK)

    def files(self):
        """The containers on disk."""
        found = sorted(path for path in self.store.data.rglob("*.chunk")
                       if "quarantine" not in path.parts)
        self.assertTrue(found, "no container on disk")
        return found

    def restart(self):
        self.end(self.store)
        self.store = self.server(config=NO_CACHE, name="sluiced-restarted")

    def assert_one_chunk_is_missing(self, *allowed_reasons):
        """All but one chunk are loaded bit-exact; then the put mends it."""
        result = self.fetch(self.store, self.input, *CHUNK, *LOSSLESS, code=PARTIAL)
        self.assertEqual(len(result.reasons()), 1, str(result))
        self.assertIn(result.reasons()[0], allowed_reasons, str(result))
        self.put(self.store, self.input, "--lossless", *CHUNK)
        self.fetch(self.store, self.input, *CHUNK, *LOSSLESS)
        self.assert_same_cache(self.folder / "out.safetensors", self.input)

    def damage(self, position):
        """Flips one bit of one container; `position` is a share of its length."""
        path = self.random.choice(self.files())
        data = bytearray(path.read_bytes())
        data[min(int(len(data) * position), len(data) - 1)] ^= 1 << self.random.randrange(8)
        with open(path, "r+b") as file:
            file.write(data)

    def test_flipped_bit_in_a_segment(self):
        self.damage(0.99)
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_flipped_bit_in_the_header(self):
        self.damage(0.0005)
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_flipped_bit_found_at_restart(self):
        self.damage(0.0005)
        self.restart()
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_truncated(self):
        path = self.random.choice(self.files())
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size * 3 // 4)
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_truncated_at_restart(self):
        path = self.random.choice(self.files())
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size * 3 // 4)
        self.restart()
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_file_gone(self):
        self.random.choice(self.files()).unlink()
        self.assert_one_chunk_is_missing("damaged", "not_stored")

    def test_swapped_containers(self):
        """A container under another chunk's name is foreign data."""
        first, second = self.files()[:2]
        data = first.read_bytes(), second.read_bytes()
        first.write_bytes(data[1])
        second.write_bytes(data[0])
        self.restart()
        result = self.fetch(self.store, self.input, *CHUNK, *LOSSLESS, code=PARTIAL)
        self.assertEqual(len(result.reasons()), 2, str(result))

    def test_rubbish_in_the_folder(self):
        """Files that the server did not write do not stop it."""
        (self.store.data / "tmp" / "left-over").write_bytes(b"x" * 100)
        (self.store.data / "notes.txt").write_text("not ours\n")
        (self.files()[0].parent / "zz.chunk").write_bytes(self.random.randbytes(1000))
        self.restart()
        result = self.fetch(self.store, self.input, *CHUNK, *LOSSLESS)
        self.assertEqual(result.code, OK)
        self.assert_same_cache(self.folder / "out.safetensors", self.input)
        self.end(self.store)


if __name__ == "__main__":
    unittest.main()
