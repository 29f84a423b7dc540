"""Serve a page from a sandbox, and print a URL that everybody on this machine can open.

Run the daemon (make demo), then: pip install cubby-sdk && python examples/preview.py
"""

from cubby import Client

PAGE = "<!doctype html><title>Hello</title><h1>Hello from a sandbox</h1>"
READY = "until curl -sf localhost:3000 >/dev/null; do sleep 0.1; done"

with Client() as client:
    box = client.sandboxes.create(ports=[3000], visibility="public")
    box.files.write("index.html", PAGE)
    box.exec(f"python3 -m http.server 3000 >server.log 2>&1 & {READY}", check=True)

    print("Open", box.url(3000))
    print("It sleeps when nobody looks, and wakes for the next visitor.")
    print(f"To remove it: cubby rm {box.id}")
