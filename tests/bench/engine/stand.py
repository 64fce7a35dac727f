"""What is measured: engines with and without the connector, a daemon, and a server at the far end
of a real link (a network namespace and a token bucket filter; as root)."""
import random
import statistics
import sys

import engine_case
import harness
import sender as sender_program
import shaped_link

CHUNK = engine_case.CHUNK
FAST_MBIT = 10_000  # as set; a single stream gets some 3,000 here
SLO_MS = 60_000  # of loads that are not to be late
LOOKUP_MS = 1000  # no load is to be left out because the machine is busy
MAX_RECORDS = 65_536


class Stand:
    """Engines are started when first used; all prompts are new to every cache."""

    def __init__(self, folder, seed, profile, cores=None):
        self.environment = {"VLLM_CPU_OMP_THREADS_BIND": cores} if cores else {}
        self.folder, self.profile, self.chance = folder, profile, random.Random(seed)
        self.processes, self.engines, self.seen = [], {}, set()
        self.records = folder / "records"
        self.link = shaped_link.ShapedLink()
        self.link.set_rate(FAST_MBIT)
        self.start_server(f"{self.link.host}:0")
        self.start_node()
        self.start_sender()
        if profile:
            self.sluice("put", "--server", self.server.address, "--profile", profile,
                        harness.REAL_CACHE)

    def started(self, process):
        self.processes.append(process)
        return process

    def start_server(self, listen):
        self.server = self.started(harness.Server(
            self.folder, self.folder / "data", listen=listen, prefix=self.link.inside()))

    def start_node(self):
        config = self.folder / "node.toml"
        config.write_text(f'[node]\nrecord_dir = "{self.records}"\nmax_records = {MAX_RECORDS}\n'
                          f'profile_cache_dir = "{self.folder / "profiles"}"\n'
                          f'prefill_file = "{self.folder / "prefill.json"}"\n', encoding="utf-8")
        self.node = self.started(harness.Node(self.folder, self.server.address, "--config", config))

    def start_sender(self):
        port_file = self.folder / "sender.port"
        sender = self.started(harness.Process(self.folder, "sender", [
            *self.link.inside(), sys.executable, "-B", sender_program.__file__, self.link.host,
            port_file]))
        self.sender_port = int(sender.read_file_when_written(port_file)[0])

    def engine(self, name):
        """`plain`: no connector; `sluice`; `builtin`: with the built-in profile; `default`: waits
        for look-ups no longer than it does by default."""
        if name not in self.engines:
            self.engines[name] = self.started(engine_case.EngineProcess(
                self.folder, self.settings(name), {}, name=name, environment=self.environment))
            self.ask(name, *self.prompts(1, 1500, 1500))  # what is slow the first time
            self.wait_for_saves()
        return self.engines[name]

    def settings(self, name):
        """Of an engine's connector; None for none."""
        if name == "plain":
            return None
        settings = {"socket": str(self.node.socket_path), "chunk_tokens": CHUNK, "slo_ms": SLO_MS,
                    "save_lossless": True, "save_blocks_share": 1}
        if name != "default":
            settings["lookup_ms"] = LOOKUP_MS
        if name != "builtin" and self.profile:
            settings["profile"] = str(self.profile)
        return settings

    def prompts(self, count, least, most):
        return engine_case.make_prompts(self.chance, count, least, most)

    # Requests.

    def ask_all(self, engine, requests):
        return self.engine(engine).ask(generate=requests)["results"]

    def ask(self, engine, tokens, max_tokens=1, **params):
        """Result of one request; `ms` is the time to its first token."""
        result, = self.ask_all(engine, [{"tokens": tokens, "max_tokens": max_tokens,
                                         "params": params}])
        return {**result, "ms": result["first_s"] * 1e3, **result.get("told", {})}

    def store(self, engine, prompts):
        """Has contexts computed and stored; the results."""
        results = [self.ask(engine, tokens) for tokens in prompts]
        self.wait_for_saves()
        return results

    def load(self, engine, tokens, **params):
        """A request whose context the engine itself does not have."""
        self.forget(engine)
        return self.ask(engine, tokens, save=False, **params)

    def forget(self, engine):
        """Empties the engine's own prefix cache."""
        harness.wait_until(lambda: self.engine(engine).ask(reset=True)["reset"], "it is empty")

    def wait_for_saves(self):
        if self.node.running():
            harness.wait_until(lambda: self.sluice("stats", "--node", self.node.socket_path,
                                                   "--json").json()["saves"] == 0,
                               "all saves have ended", engine_case.ANSWER_LIMIT_S)

    def fetch_ms(self, count):
        """How long so many bytes take over the link by themselves."""
        return sender_program.fetch_ms(self.link.host, self.sender_port, count)

    # What the daemon says.

    def sluice(self, *arguments, codes=(harness.OK,)):
        result = harness.Running(*arguments).result()
        assert result.code in codes, str(result)
        return result

    def new_record(self):
        """What is recorded of the load since the last call, or None if there was none."""
        new = set(self.records.glob("*.load")) - self.seen
        self.seen |= new
        return self.explain(max(new)) if new else None

    def explain(self, record):
        return self.sluice("explain", "--json", record,
                           codes=(harness.OK, harness.FAILURE)).json()

    def close(self):
        for process in reversed(self.processes):
            if process.running():
                process.kill()
        self.link.close()


def full_tokens(tokens):
    """How many of a prompt's tokens a load may bring: full chunks, and one token is computed."""
    return (len(tokens) - 1) // CHUNK * CHUNK


def median(values):
    values = list(values)
    return statistics.median(values) if values else float("nan")


def fully_loaded(result, tokens):
    return result.get("sluice", {}).get("loaded_tokens") == full_tokens(tokens)
