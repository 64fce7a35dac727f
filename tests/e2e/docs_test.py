#!/usr/bin/env python3
"""The commands in the READMEs work as they stand.

Runs every ```sh block that follows a line `<!-- test -->`, in a folder that holds `kv.safetensors`
(the real cache), with the programs on PATH. `localhost:7420` stands for a server of the test.
"""
import os
import re
import shutil
import subprocess
import unittest

import harness

TESTED_BLOCK = re.compile(r"^<!-- test -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
READMES = sorted({path for pattern in ("", "*/", "*/*/")
                  for path in harness.ROOT.glob(pattern + "README.md")
                  if not path.relative_to(harness.ROOT).parts[0].startswith("build")})


class DocsTest(harness.EndToEnd):
    def test_commands(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name, variable in (("sluice", "SLUICE_CLI"), ("sluiced", "SLUICE_SLUICED"),
                               ("sluice-node", "SLUICE_NODE")):
            (programs / name).symlink_to(os.environ[variable])
        server = self.server()
        count = 0
        for readme in READMES:
            for block in TESTED_BLOCK.findall(readme.read_text(encoding="utf-8")):
                count += 1
                place = self.folder / f"block{count}"
                place.mkdir()
                shutil.copy(harness.REAL_CACHE, place / "kv.safetensors")
                done = subprocess.run(
                    ["bash", "-exuo", "pipefail", "-c", block.replace("localhost:7420",
                                                                     server.address)],
                    cwd=place, capture_output=True, text=True, timeout=3 * harness.LIMIT_S,
                    check=False, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
                with self.subTest(readme=str(readme), block=count):
                    self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}")
        self.assertGreater(count, 0, "no README has a tested block")
        self.end(server)


if __name__ == "__main__":
    unittest.main()
