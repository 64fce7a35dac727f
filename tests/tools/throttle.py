#!/usr/bin/env python3
"""A TCP proxy that is a slow link: limits the bytes per second between clients and a server.

  throttle.py --target HOST:PORT [--rate BYTES_PER_S] [--port-file FILE] [--stdin]

Listens on a free port of 127.0.0.1; prints (and writes to FILE) `PORT CONTROL_PORT`. All
connections share the limits. Sockets have small buffers, so a slow link makes the sender wait
instead of letting bytes pile up in the kernel. Each line sent to the control port (with --stdin: or
to stdin) is a command and is answered with one line:

  rate N     from the server N bytes/s from now on; 0 means no limit
  up-rate N  to the server N bytes/s from now on; 0 means no limit
  cut        reset every connection; new ones are accepted
  refuse     reset every connection and refuse new ones;  accept  ends that
  stats      `connections C down D up U`: open now, bytes carried since start in each direction
"""
import argparse
import asyncio
import os
import socket
import struct
import sys

BUFFER_BYTES = 4 << 10
READ_BYTES = 64 << 10
# As on Ethernet: the kernel sizes the server's send buffer by segments, and loopback's have 64 KiB.
SEGMENT_BYTES = 1448
SLICE_SECONDS = 0.01
MIN_SLICE_BYTES = 1 << 10
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TokenBucket:
    """Lets through `rate` bytes/s, SLICE_SECONDS' worth at a time."""

    def __init__(self, rate):
        self.clock = asyncio.get_running_loop().time
        self.changed = asyncio.Event()
        self.set_rate(rate)

    def set_rate(self, rate):
        self.rate = rate
        self.tokens = 0.0
        self.filled_at = self.clock()
        self.changed.set()

    async def take(self):
        """Number of bytes that may be read now, at least 1; waits until there are some."""
        while self.rate > 0:
            wanted = min(READ_BYTES, max(MIN_SLICE_BYTES, self.rate * SLICE_SECONDS))
            now = self.clock()
            self.tokens += (now - self.filled_at) * self.rate
            # Time in which nobody read is not saved up; a late wake-up is made good.
            self.tokens = min(self.tokens, 4 * wanted)
            self.filled_at = now
            if self.tokens >= wanted:
                self.tokens -= wanted
                return int(wanted)
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), (wanted - self.tokens) / self.rate)
            except asyncio.TimeoutError:
                pass
        return READ_BYTES

    def give_back(self, count):
        self.tokens += count


class Direction:
    """One direction of all connections."""

    def __init__(self, rate):
        self.bucket = TokenBucket(rate)
        self.carried = 0

    async def carry(self, source, sink):
        loop = asyncio.get_running_loop()
        while True:
            allowed = await self.bucket.take()
            data = await loop.sock_recv(source, allowed)
            self.bucket.give_back(allowed - len(data))
            if not data:
                return
            await loop.sock_sendall(sink, data)
            self.carried += len(data)


class Proxy:
    def __init__(self, target, rate):
        self.target = target
        self.down = Direction(rate)
        self.up = Direction(0)
        self.loop = asyncio.get_running_loop()
        self.connections = set()
        self.refusing = False

    def command(self, line):
        words = line.split()
        if len(words) == 2 and words[0] in ("rate", "up-rate") and words[1].isdigit():
            direction = self.down if words[0] == "rate" else self.up
            direction.bucket.set_rate(int(words[1]))
        elif words == ["cut"]:
            self.cut()
        elif words in (["refuse"], ["accept"]):
            self.refusing = words == ["refuse"]
            if self.refusing:
                self.cut()
        elif words == ["stats"]:
            return (f"connections {len(self.connections)} down {self.down.carried} "
                    f"up {self.up.carried}")
        else:
            return f"error: unknown command {line.strip()!r}"
        return "ok"

    def cut(self):
        for task in list(self.connections):
            task.cancel()

    async def serve(self, listener):
        while True:
            client, _ = await self.loop.sock_accept(listener)
            if self.refusing:
                reset(client)
                continue
            task = self.loop.create_task(self.carry(client))
            self.connections.add(task)
            task.add_done_callback(self.connections.discard)

    async def carry(self, client):
        """One connection, until either side ends it; then both are reset."""
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        directions = []
        try:
            prepare(server)
            await self.loop.sock_connect(server, self.target)
            directions = [self.loop.create_task(self.down.carry(server, client)),
                          self.loop.create_task(self.up.carry(client, server))]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            reset(client)
            reset(server)


def prepare(sock):
    """Small buffers both ways; before the connection, which agrees on window and segments."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)


def reset(sock):
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    except OSError:
        pass
    sock.close()


async def commands_of_stdin(proxy):
    reader = asyncio.StreamReader()
    await proxy.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(proxy.command(line.decode(errors="replace")), flush=True)


async def commands_of_connection(proxy, reader, writer):
    while line := await reader.readline():
        writer.write(proxy.command(line.decode(errors="replace")).encode() + b"\n")
        await writer.drain()
    writer.close()


async def run(options):
    host, _, port = options.target.rpartition(":")
    proxy = Proxy((socket.gethostbyname(host), int(port)), options.rate)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    prepare(listener)  # accepted sockets inherit it
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    control = await asyncio.start_server(
        lambda reader, writer: commands_of_connection(proxy, reader, writer), "127.0.0.1", 0)
    ports = f"{listener.getsockname()[1]} {control.sockets[0].getsockname()[1]}"
    if options.port_file:
        with open(options.port_file + ".new", "w", encoding="ascii") as file:
            file.write(ports + "\n")
        os.rename(options.port_file + ".new", options.port_file)
    print(ports, flush=True)
    if options.stdin:
        proxy.loop.create_task(commands_of_stdin(proxy))
    await proxy.serve(listener)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--rate", type=int, default=0, metavar="BYTES_PER_S")
    parser.add_argument("--port-file", metavar="FILE")
    parser.add_argument("--stdin", action="store_true", help="take commands from stdin too")
    try:
        asyncio.run(run(parser.parse_args()))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
