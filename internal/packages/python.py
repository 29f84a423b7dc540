# Installs packages with pip. The argument is JSON: [{"name", "argument"}].
# The last line of standard output is JSON: {"installed": [{"name", "version"}]}.
import json
import os
import subprocess
import sys

REPORT = """
import json, sys
from importlib import metadata
print(json.dumps({"installed": [{"name": n, "version": metadata.version(n)} for n in sys.argv[1:]]}))
"""


def run(*arguments, log=None):
    code = subprocess.call([sys.executable, *arguments], pass_fds=[] if log is None else [log])
    if code and log is not None:
        tell_why(log)
    if code:
        sys.exit(code if code > 0 else 128 - code)


def tell_why(log):
    # pip says "no matching distribution" alike of an index that knows no such
    # package and of one that cannot be asked. Its log has the difference.
    with open(log, errors="replace") as lines:
        told = {line[line.index("Could not fetch URL"):] for line in lines
                if "Could not fetch URL" in line and ": 404 " not in line}
    for line in sorted(told)[:10]:
        print(line, end="", file=sys.stderr)


wanted = json.loads(sys.argv[1])
log = os.memfd_create("pip")
run("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--log", "/proc/self/fd/%d" % log, "--",
    *(w["argument"] for w in wanted), log=log)
# In a process of its own: this one began before pip made its directories.
run("-c", REPORT, *(w["name"] for w in wanted))
