"""Stands in for the demo's child process: ``python fake_child.py BEHAVIOUR``. Needs no model.

healthy    serves; /health is 200
loading    serves; /health is 503 for the first two requests
dies       writes to stderr and exits with code 3
mute       never says its address, and goes on when stdin is closed
vanishes   says an address and exits with code 4
"""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

behaviour = sys.argv[1]
answers = [503, 503] if behaviour == "loading" else []


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(answers.pop() if answers else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()


if behaviour == "dies":
    sys.stderr.write("cannot load the model\n")
    sys.exit(3)
if behaviour == "mute":
    time.sleep(120)
server = ThreadingHTTPServer(("127.0.0.1", 0), _Health)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
if behaviour == "vanishes":
    sys.exit(4)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
