"""Sends as many bytes as it is asked for: what any store at the far end of a link needs at least.

    sender.py HOST PORT_FILE"""
import os
import socket
import struct
import sys
import time
from pathlib import Path

PIECE_BYTES = 1 << 20


def serve(host, port_file):
    listener = socket.create_server((host, 0))
    written = Path(f"{port_file}.new")
    written.write_text(f"{listener.getsockname()[1]}\n", encoding="ascii")
    os.rename(written, port_file)
    while True:
        connection, _ = listener.accept()
        with connection:
            asked, = struct.unpack("<Q", connection.recv(8))
            connection.sendall(bytes(asked))


def fetch_ms(host, port, count):
    """How long `count` bytes take from a sender, on a new connection."""
    began = time.monotonic()
    with socket.create_connection((host, port)) as connection:
        connection.sendall(struct.pack("<Q", count))
        while count > 0:
            count -= len(connection.recv(PIECE_BYTES)) or count
    return (time.monotonic() - began) * 1e3


if __name__ == "__main__":
    serve(*sys.argv[1:])
