#!/usr/bin/env python3
"""Asks an engine with an OpenAI API about a document, and measures the time to the first token.

  ask.py [--document FILE] [--salt TEXT] [--tokens N] SOCKET QUESTION
  ask.py --forget SOCKET

Prints one line: the time to the first token in ms, the tokens of the prompt, then the answer, the
most likely one. Caches of prompts with different salts are kept apart. With --forget the engine
forgets its own cache of earlier prompts (vLLM in its development mode). SOCKET is the engine's unix
socket. Every wait has a limit; the exit status is 1 if there is no answer.
"""
import argparse
import http.client
import json
import pathlib
import socket
import sys
import time

LIMIT_S = 120
FORGET_TRIES = 100


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def post(path, target, body):
    """The engine's response, which may still stream, or exits with what the engine says."""
    connection = UnixConnection(path)
    connection.request("POST", target, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"ask: {target}: status {response.status}: {response.read().decode()}")
    return response


def events(response):
    """What a streamed response consists of."""
    for line in response:
        if line.startswith(b"data: {"):
            event = json.loads(line[len(b"data: "):])
            if "error" in event:
                sys.exit(f"ask: the engine reports {event['error']}")
            yield event


def ask(path, prompt, salt, max_tokens):
    """(time to the first token in ms, tokens of the prompt, the whole answer)."""
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0,
            "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    if salt:
        body["cache_salt"] = salt
    started = time.monotonic()
    first_ms, text = None, ""
    for event in events(post(path, "/v1/chat/completions", body)):
        for choice in event["choices"]:
            if first_ms is None and choice["delta"].get("content"):
                first_ms = (time.monotonic() - started) * 1000
            text += choice["delta"].get("content") or ""
    if first_ms is None:
        sys.exit("ask: the engine answered without a token")
    return first_ms, event["usage"]["prompt_tokens"], " ".join(text.split())


def forget(path):
    """Tries again while blocks are being stored; a trifle to do makes the engine notice."""
    for _ in range(FORGET_TRIES):
        if json.load(post(path, "/reset_prefix_cache", {}))["success"]:
            return
        ask(path, "Hello", None, max_tokens=1)
    sys.exit("ask: the engine does not forget: its blocks stay in use")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=pathlib.Path)
    parser.add_argument("--salt")
    parser.add_argument("--tokens", type=int, default=24, help="of the answer, at most")
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("socket", metavar="SOCKET")
    parser.add_argument("question", metavar="QUESTION", nargs="?")
    args = parser.parse_intermixed_args()
    if args.forget == bool(args.question):
        parser.error("either --forget or a question is needed")
    try:
        if args.forget:
            forget(args.socket)
            return
        document = args.document.read_text(encoding="utf-8") + "\n\n" if args.document else ""
        first_ms, tokens, text = ask(args.socket, document + args.question, args.salt,
                                     args.tokens)
    except OSError as error:
        sys.exit(f"ask: {args.socket}: {error}")
    print(f"{first_ms:.0f} {tokens} {text}")


if __name__ == "__main__":
    main()
