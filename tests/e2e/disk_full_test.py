#!/usr/bin/env python3
"""A full disk: the put fails with a reason, nothing half is visible, reads go on."""
import os
import subprocess
import unittest

import harness

CHUNK = ("--chunk-tokens", 64)
DISK_BYTES = 4 << 20


class DiskFullTest(harness.EndToEnd):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can mount a small tmpfs")
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.disk],
            capture_output=True, text=True, check=False)
        if mount.returncode != 0:
            self.skipTest(f"mount is not allowed here: {mount.stderr.strip()}")
        self.addCleanup(self.unmount)

    def unmount(self):
        self.end_processes()
        subprocess.run(["umount", self.disk], check=True)

    def test_disk_full(self):
        server = self.server(data=self.disk / "data")
        small = self.cache("small.safetensors", tokens=256, model="small")
        self.put(server, small, "--lossless", *CHUNK)
        large = self.cache("large.safetensors", tokens=1024, layers=4, heads=4, head_dim=128,
                           model="large")
        result = self.put(server, large, "--lossless", *CHUNK, code=None)
        self.assertNotEqual(result.code, harness.OK, str(result))
        self.assertRegex(result.err, r"(?i)space|full|quota|exhausted")
        self.assertEqual(list((server.data / "tmp").iterdir()), [])

        self.fetch(server, small, *CHUNK, "--level", "lossless")
        self.assert_same_cache(self.folder / "out.safetensors", small)
        partly = self.fetch(server, large, *CHUNK, "--level", "lossless", slo_ms=30_000,
                            code=harness.PARTIAL)
        self.assertEqual(set(partly.reasons()), {"not_stored"}, str(partly))

        # Space that is freed can be used without a restart.
        self.sluice("rm", "--server", server.address, "large")
        self.put(server, small, "--lossless", *CHUNK)
        self.fetch(server, small, *CHUNK, "--level", "lossless")
        self.end(server)


if __name__ == "__main__":
    unittest.main()
