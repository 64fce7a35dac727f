"""The program `sluice` as the bench uses it."""
import json
import pathlib
import re
import subprocess


def levels_cost(program, profile, caches):
    """Bits of all lossy levels together, and of the finest alone, by the program `levels_bench`."""
    command = [program, profile, *caches]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


class Sluice:
    def __init__(self, program, work):
        self.program, self.work = program, pathlib.Path(work)
        self.work.mkdir(parents=True, exist_ok=True)

    def run(self, *words, **how):
        command = [self.program, *map(str, words)]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, **how)
        if done.returncode != 0:
            raise SystemExit(f"quality: {' '.join(map(str, command))}: exit code {done.returncode}")
        return done.stdout

    def encode(self, cache, profile=None):
        """The path of the encoded context; `profile` None: the built-in one."""
        encoded = self.work / "encoded.sluice"
        self.run("encode", *(["--profile", profile] if profile else []), cache, encoded)
        return encoded

    def level_bytes(self, encoded):
        """Bytes a level needs, by level: all of its containers up to it, headers included."""
        return json.loads(self.run("inspect", "--json", encoded))["level_bytes"]

    def decode(self, encoded, level):
        decoded = self.work / "decoded.safetensors"
        self.run("decode", "--level", level, encoded, decoded)
        return decoded

    def calibrate(self, name, caches, sensitivity=None, queries=None):
        """The path of a profile made of some caches."""
        profile = self.work / (re.sub(r"\W+", "-", name) + ".profile")
        self.run("calibrate", "--out", profile,
                 *(["--sensitivity", sensitivity] if sensitivity else []),
                 *(["--queries", queries] if queries else []), *caches)
        return profile
