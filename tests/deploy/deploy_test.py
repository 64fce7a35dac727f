#!/usr/bin/env python3
"""What is deployed is well formed: units, scripts, sample configurations.

The programs are named by the environment: SLUICE_SLUICED, SLUICE_NODE.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = {"sluiced": os.environ["SLUICE_SLUICED"], "sluice-node": os.environ["SLUICE_NODE"]}
ENGINE = DEPLOY / "vllm" / "sluice-vllm.service"
# What each unit starts, and what stands for it here.
UNITS = {**{DEPLOY / "systemd" / f"{name}.service": (f"/usr/bin/{name}", program)
            for name, program in PROGRAMS.items()},
         ENGINE: ("/opt/sluice-vllm/bin/python", sys.executable)}
# systemd's exposure, in tenths: 0 is closed, 100 is open. Node and engine share /dev/shm.
EXPOSURE_LIMIT = {"sluiced": 15, "sluice-node": 20, "sluice-vllm": 20}
SHARED = DEPLOY / "common.sh"  # sourced, not run
COMMANDS = sorted(set(DEPLOY.rglob("*.sh")) - {SHARED})
SCRIPTS = [*COMMANDS, ROOT / "tests" / "run.sh", ROOT / ".ci" / "run"]
TIMEOUT_S = 60


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class Deploy(unittest.TestCase):
    def assert_succeeds(self, *command):
        done = run(*command)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_valid(self):
        for source, (installed, program) in UNITS.items():
            with self.subTest(unit=source.name), tempfile.TemporaryDirectory() as folder:
                unit = Path(folder) / source.name
                text = source.read_text(encoding="utf-8")
                self.assertIn(f"ExecStart={installed} ", text)
                unit.write_text(text.replace(installed, program), encoding="utf-8")
                done = self.assert_succeeds("systemd-analyze", "verify", str(unit))
                about_unit = [line for line in done.stderr.splitlines() if unit.name in line]
                self.assertFalse(about_unit, done.stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_hardened(self):
        for unit in UNITS:
            with self.subTest(unit=unit.name):
                self.assert_succeeds("systemd-analyze", "security", "--no-pager", "--offline=true",
                                     f"--threshold={EXPOSURE_LIMIT[unit.stem]}", str(unit))

    def test_units_start_the_installed_programs(self):
        for name in PROGRAMS:
            text = (DEPLOY / "systemd" / f"{name}.service").read_text(encoding="utf-8")
            self.assertIn(f"ExecStart=/usr/bin/{name} --config /etc/sluice/{name}.toml\n", text)
            for setting in ("Type=notify", "WatchdogSec=", "Restart=on-failure"):
                self.assertIn(setting, text)

    def test_node_may_make_code(self):
        """Calibrated profiles need it: oneDNN compiles its matrix products."""
        text = (DEPLOY / "systemd" / "sluice-node.service").read_text(encoding="utf-8")
        self.assertNotIn("MemoryDenyWriteExecute=yes", text)
        self.assertIn("CacheDirectory=sluice-node\n", text)

    def test_engine_recomputes_what_is_not_loaded(self):
        """With vLLM's default its requests would end with an error."""
        settings = (DEPLOY / "vllm" / "sluice-vllm.env").read_text(encoding="utf-8")
        values = dict(word.split("=", 1) for word in shlex.split(settings, comments=True)
                      if "=" in word)
        for name in values:
            self.assertRegex(ENGINE.read_text(encoding="utf-8"), rf"\$\{{?{name}\b")
        connector = json.loads(values["CONNECTOR"])
        self.assertEqual(connector["kv_load_failure_policy"], "recompute")
        self.assertEqual(connector["kv_connector_extra_config"]["socket"], "/run/sluice/node.sock")

    def test_sample_configurations_are_valid(self):
        for name, program in PROGRAMS.items():
            with self.subTest(program=name):
                self.assert_succeeds(program, "--config", str(DEPLOY / f"{name}.toml"),
                                     "--check-config")

    def test_scripts_parse(self):
        self.assert_succeeds("bash", "-n", str(SHARED))
        for script in SCRIPTS:
            with self.subTest(script=script.name):
                self.assert_succeeds("bash", "-n", str(script))
                self.assertTrue(os.access(script, os.X_OK), f"{script} is not executable")

    def test_scripts_explain_themselves(self):
        for script in COMMANDS:
            with self.subTest(script=script.name):
                text = self.assert_succeeds(str(script), "--help").stdout
                self.assertIn(str(script.relative_to(ROOT)), text)
                self.assertNotIn("set -euo", text)
                self.assertEqual(run(str(script), "--no-such-flag").returncode, 2)

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_scripts_are_clean(self):
        self.assert_succeeds("shellcheck", "--external-sources", "--source-path", str(ROOT),
                             str(SHARED), *map(str, SCRIPTS))

    def test_packages_have_a_kind_and_a_reason(self):
        for line in (DEPLOY / "packages.txt").read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r"^(runtime|build|engine|test)\s+[a-z0-9.+-]+\s+\S")

    def test_engine_versions_are_pinned(self):
        for line in (DEPLOY / "vllm" / "engine-versions.txt").read_text("utf-8").splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r"^[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*$")

    def test_programs_link_only_to_listed_packages(self):
        listed = re.findall(r"^runtime\s+(\S+)", (DEPLOY / "packages.txt").read_text("utf-8"), re.M)
        direct = re.compile(r"\(NEEDED\).*\[lib(grpc|protobuf|absl|spdlog|fmt|xxhash|zstd|crypto|"
                            r"systemd|yaml-cpp|re2|cares)")
        names = {"crypto": "ssl", "grpc": "grpc++"}
        for program in PROGRAMS.values():
            needed = self.assert_succeeds("readelf", "-d", program).stdout
            for library in set(direct.findall(needed)):
                name = "lib" + names.get(library, library)
                self.assertTrue(any(package.startswith(name) for package in listed),
                                f"{program} needs {library}: not in deploy/packages.txt")


if __name__ == "__main__":
    unittest.main()
