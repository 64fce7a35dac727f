"""A server behind a real link: a network namespace, a pair of interfaces, a token bucket filter.

Needs the right to make network namespaces; `why_not()` says what is missing.
"""
import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import threading
import time

COUNTER = itertools.count()
BURST_BYTES = 32 << 10
QUEUE_BYTES = 128 << 10  # may wait in the link, whatever its rate


def run(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)


@functools.lru_cache
def why_not():
    """None if links can be made here, else the reason."""
    for program in ("ip", "sysctl", "tc"):
        if shutil.which(program) is None:
            return f"no program `{program}`"
    try:
        ShapedLink().close()
    except (subprocess.CalledProcessError, OSError) as error:
        return f"no right to make network namespaces: {getattr(error, 'stderr', '') or error}"
    return None


class ShapedLink:
    """The server's end is in a namespace of its own; what it sends is shaped."""

    def __init__(self):
        number = next(COUNTER)
        self.namespace = f"sluice-{os.getpid()}-{number}"
        self.near, self.far = f"sl{os.getpid()}n{number}"[:15], f"sl{os.getpid()}f{number}"[:15]
        subnet = (os.getpid() * 16 + number) % (1 << 14)
        prefix = f"10.{200 + (subnet >> 8) % 50}.{subnet & 255}"
        self.near_host, self.host = f"{prefix}.1", f"{prefix}.2"
        run("ip", "netns", "add", self.namespace)
        try:
            run("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far,
                "netns", self.namespace)
            run("ip", "address", "add", f"{self.near_host}/30", "dev", self.near)
            run("ip", "-n", self.namespace, "address", "add", f"{self.host}/30", "dev", self.far)
            run("ip", "link", "set", self.near, "up")
            run("ip", "-n", self.namespace, "link", "set", self.far, "up")
            run("ip", "-n", self.namespace, "link", "set", "lo", "up")
            # BBR, the default of some machines, would pace a load by what the link was in the one
            # before. Reno is allowed everywhere.
            run(*self.inside(), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
            self.set_rate(1000)
        except BaseException:
            self.close()
            raise

    def inside(self):
        """Words before a command that is to run at the far end."""
        return ("ip", "netns", "exec", self.namespace)

    def set_rate(self, mbit):
        run("tc", "-n", self.namespace, "qdisc", "replace", "dev", self.far, "root", "tbf",
            "rate", f"{max(int(mbit * 1000), 8)}kbit", "burst", BURST_BYTES,
            "limit", QUEUE_BYTES)
        # The filter sleeps by its old rate until a packet comes.
        run(*self.inside(), "bash", "-c", f"echo >/dev/udp/{self.near_host}/9")

    def fill_queue(self, seconds):
        """Sets a rate at which the queue takes so long, and fills it, as others on the link do."""
        self.set_rate(QUEUE_BYTES * 8e-6 / seconds)
        count = (BURST_BYTES + QUEUE_BYTES) // 1000
        run(*self.inside(), "bash", "-c", f"text=$(printf %01000d 0); for ((i = 0; i < {count}; "
            f"++i)); do printf $text >/dev/udp/{self.near_host}/9; done")

    @contextlib.contextmanager
    def playing(self, rates):
        """Sets rates [(ms from now, Mbit/s), ...], the first at once, while its block runs; gives
        the list of those set so far, with the times at which they were."""
        start, stop, told = time.monotonic(), threading.Event(), []

        def play():
            for at_ms, mbit in rates:
                if stop.wait(max(0, start + at_ms / 1e3 - time.monotonic())):
                    return
                self.set_rate(mbit)
                told.append(((time.monotonic() - start) * 1e3, mbit))

        player = threading.Thread(target=play)
        player.start()
        try:
            yield told
        finally:
            stop.set()
            player.join()

    def set_up(self, up):
        run("ip", "link", "set", self.near, "up" if up else "down")

    def drain(self):
        """Lets go what waits in the link, at a high rate."""
        self.set_rate(1000)
        pause = threading.Event()
        before = -1
        while before != self.sent_bytes():
            before = self.sent_bytes()
            pause.wait(0.05)

    def sent_bytes(self):
        """What the far end has sent, headers included."""
        text = subprocess.run(["ip", "netns", "exec", self.namespace, "cat",
                               "/proc/net/dev"], check=True, capture_output=True, text=True).stdout
        for line in text.splitlines():
            name, _, numbers = line.strip().partition(":")
            if name == self.far:
                return int(numbers.split()[8])
        raise AssertionError(f"no interface {self.far}")

    def close(self):
        # The interfaces go with the namespace.
        subprocess.run(["ip", "link", "delete", self.near], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)
