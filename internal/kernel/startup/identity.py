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

    # Generators that the user made. Methods are those of the modules: a class of the
    # user's may have others.
    def fresh(generator):
        own = type(generator)()
        try:
            # With what spawn() makes others of.
            generator.__setstate__((own.state, own.seed_seq))
        except Exception:
            generator.state = own.state

    def forget(state):
        # The second half of a pair that it drew before; its generator is seeded as
        # such.
        own = state.get_state(legacy=False)
        own["has_gauss"], own["gauss"] = 0, 0.0
        state.set_state(own)

    seeds = {}
    if reseed and hasattr(sys.modules.get("random"), "Random"):
        seeds[sys.modules["random"].Random] = sys.modules["random"].Random.seed
    if reseed and hasattr(sys.modules.get("numpy.random"), "BitGenerator"):
        seeds[sys.modules["numpy.random"].BitGenerator] = fresh
        seeds[sys.modules["numpy.random"].RandomState] = forget
    if seeds:
        import gc

        # Of a million objects some have these classes: the classes are fewer.
        everything = gc.get_objects()
        classes = {}
        for one in set(map(type, everything)):
            for kind, seed in seeds.items():
                if issubclass(one, kind):
                    classes[one] = seed
        for held in [o for o in everything if type(o) in classes]:
            try:
                classes[type(held)](held)
            except Exception:
                failed.append("a " + type(held).__name__)
    if failed:
        raise RuntimeError("cannot seed " + ", ".join(failed))


