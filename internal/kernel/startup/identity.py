def _cubby(changes, reseed):
    import os
    import sys
    import time

    # What a kernel sets for itself it keeps, and what the user set since.
    own = ("TERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR")
    for name, old, new in changes:
        if name in own or os.environ.get(name) != old:
            continue
        if new is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = new
        if name == "TZ":
            time.tzset()

    def standard():
        sys.modules["random"].seed()

    def numpy():
        sys.modules["numpy.random"].seed()

    def openssl():
        sys.modules["_ssl"].RAND_add(os.urandom(64), 64.0)

    failed = []
    for module, seed in (("random", standard), ("numpy.random", numpy), ("_ssl", openssl)):
        if reseed and module in sys.modules:
            try:
                seed()
            except Exception:
                failed.append(module)
    if failed:
        raise RuntimeError("cannot seed " + ", ".join(failed))


