"""Gathers what a Python kernel imports as it starts into one file, beside this one.

Run it as root when an image is made, after what it has of Python and IPython: a kernel
starts in half the time in gVisor, where each look for a file is dear. A kernel takes no module from
it whose source has another time or size than here, or that another directory of its
path has first: packages may be changed afterwards.

The file: the magic number of Python's caches (4 bytes), the length of the file and where the
code begins (8 bytes each, the least significant first), the index, and the code of each
module as in its cache. The index is marshalled: from the module's name to the path of its
source, whether it is a package, time and size of the source, and offset and length of its code.
"""

import contextlib
import importlib
import importlib.util
import marshal
import os
import struct
import sys

# What a kernel goes without: cubby's kernels import these when somebody asks for them.
WITHOUT = "debugpy", "jedi"
NOT = "IPython.terminal.", "prompt_toolkit", "wcwidth", "psutil", "__main__"
KERNEL = (
    "ipykernel.debugger",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "tornado.platform.asyncio",
    "traitlets.config.argcomplete_config",
    "IPython.core.completerlib",
    "IPython.extensions.storemagic",
)


def gather():
    for name in WITHOUT:
        sys.modules[name] = None
    for name in KERNEL:
        with contextlib.suppress(ModuleNotFoundError):  # not every version has all
            importlib.import_module(name)
    index, code, at = {}, [], 0
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if not spec or spec.name != name or not spec.has_location or not spec.cached or name.startswith(NOT):
            continue
        try:
            source = os.stat(spec.origin)
            with open(spec.cached, "rb") as file:
                cache = file.read()
        except OSError:
            continue
        # Of the time and size of this source: flags, time, size.
        if cache[:4] != importlib.util.MAGIC_NUMBER or cache[4:16] != struct.pack(
            "<III", 0, int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF
        ):
            continue
        package = spec.submodule_search_locations is not None
        index[name] = spec.origin, package, int(source.st_mtime), source.st_size, at, len(cache) - 16
        code.append(cache[16:])
        at += len(cache) - 16
    return index, b"".join(code)


def write(path, index, code):
    head = marshal.dumps(index)
    begin = 20 + len(head)
    with open(path, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + struct.pack("<QQ", begin + len(code), begin) + head + code)


if __name__ == "__main__":
    index, code = gather()
    if "ipykernel.kernelapp" not in index:
        sys.exit("kernel-modules: the modules of ipykernel have no caches by time and size")
    write(os.path.splitext(os.path.abspath(__file__))[0], index, code)
