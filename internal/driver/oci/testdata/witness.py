"""Holds something of every kind that a sleep must keep, and says whether it is
all there."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

PORT = 7123


def serve():
    state = {"asked": 0, "ticks": 0}
    blob = bytearray(os.urandom(1 << 20)) * 8
    blob_sum = hash(bytes(blob))

    with open("/workspace/numbers", "w") as f:
        f.write("one\ntwo\nthree\nfour\nfive\nsix\n")
    numbers = open("/workspace/numbers")
    words = iter(numbers.readline, "")

    unlinked = {}
    for directory in ("/workspace", "/home/sandbox", "/tmp", "/var/tmp", "/dev/shm"):
        f = tempfile.TemporaryFile(dir=directory)
        f.write(directory.encode())
        f.flush()
        unlinked[directory] = f
    with open("/dev/shm/named", "w") as f:
        f.write("shared")

    buffered = open("/workspace/written", "w+")

    listener = socket.create_server(("127.0.0.1", PORT))
    inner = socket.create_server(("127.0.0.1", PORT + 1))
    client = socket.create_connection(("127.0.0.1", PORT + 1))
    peer, _ = inner.accept()
    client.send(b"in flight")
    left, right = socket.socketpair()
    read_end, write_end = os.pipe()
    sleeper = subprocess.Popen(["sleep", "100000"])

    def tick():
        while True:
            state["ticks"] += 1
            time.sleep(0.01)

    threading.Thread(target=tick, daemon=True).start()
    open("/workspace/ready", "w").close()

    while True:
        conn, _ = listener.accept()
        state["asked"] += 1
        missing = []

        def check(what, good):
            if not good:
                missing.append(what)

        check("memory", hash(bytes(blob)) == blob_sum)
        check("offset of an open file", next(words) == ["one\n", "two\n", "three\n", "four\n"][state["asked"] - 1])
        for directory, f in unlinked.items():
            f.seek(0)
            check("unlinked file in " + directory, f.read() == directory.encode())
        check("file in /dev/shm", open("/dev/shm/named").read() == "shared")
        buffered.write("again\n")
        buffered.flush()
        check("file that is written", open("/workspace/written").read() == "again\n" * state["asked"])
        check("bytes on a loopback connection", peer.recv(100) == b"in flight")
        client.send(b"in flight")
        left.send(b"x")
        check("socket pair", right.recv(1) == b"x")
        os.write(write_end, b"y")
        check("pipe", os.read(read_end, 1) == b"y")
        check("child process", sleeper.poll() is None)
        before = state["ticks"]
        deadline = time.monotonic() + 10
        while state["ticks"] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        check("thread that counts", state["ticks"] > before)
        conn.send((", ".join(missing) or "whole").encode())
        conn.close()


def ask():
    conn = socket.create_connection(("127.0.0.1", PORT), 20)
    print(conn.recv(1000).decode())


{"serve": serve, "ask": ask}[sys.argv[1]]()
