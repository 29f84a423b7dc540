# Installs packages with pip. The argument is JSON: [{"name", "argument"}].
# The last line of standard output is JSON: {"installed": [{"name", "version"}]}.
import json
import subprocess
import sys

REPORT = """
import json, sys
from importlib import metadata
print(json.dumps({"installed": [{"name": n, "version": metadata.version(n)} for n in sys.argv[1:]]}))
"""


def run(*arguments):
    code = subprocess.call([sys.executable, *arguments])
    if code:
        sys.exit(code if code > 0 else 128 - code)


wanted = json.loads(sys.argv[1])
run("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--",
    *(w["argument"] for w in wanted))
# In a process of its own: this one began before pip made its directories.
run("-c", REPORT, *(w["name"] for w in wanted))
