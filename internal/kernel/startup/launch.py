def _cubby():
    import sys

    # The directory that it starts in has the user's files. ipykernel takes it out of
    # the path until it has begun, and so does this.
    if sys.path[:1] == [""]:
        del sys.path[0]

    import importlib.util
    from types import ModuleType

    # A third of what a kernel reads as it starts is IPython's terminal, for one name
    # that a kernel has no use for, and what completes code. Both are imported when
    # somebody asks for them.
    stand_ins = {}

    def stand_in(name, kind=ModuleType):
        if name not in sys.modules:
            stand_ins[name] = sys.modules[name] = kind(name)
        return sys.modules[name]

    class Completer(ModuleType):
        def __getattr__(self, attribute):
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            real = importlib.import_module("jedi")
            # What IPython has chosen as it was imported.
            chosen = vars(vars(self).pop("settings", ModuleType("")))
            vars(real.settings).update({k: v for k, v in chosen.items() if k[:2] != "__"})
            return getattr(real, attribute)

    def later(attribute):
        if attribute == "embed":
            return importlib.import_module("IPython.terminal.embed").embed
        if attribute == "terminal":
            importlib.import_module("IPython.terminal.embed")
            return sys.modules["IPython.terminal"]
        if inherited is not None:
            return inherited(attribute)
        raise AttributeError(f"module 'IPython' has no attribute {attribute!r}")

    try:
        stand_in("IPython.terminal.embed").embed = None
        if importlib.util.find_spec("jedi"):
            stand_in("jedi", Completer).settings = ModuleType("jedi.settings")
            for name in ("jedi.api", "jedi.api.helpers", "jedi.api.classes"):
                stand_in(name)
        import IPython
        import IPython.core.completer  # noqa: F401

        inherited = getattr(IPython, "__getattr__", None)
        if IPython.__dict__.get("embed", 0) is None:
            del IPython.embed
            IPython.__getattr__ = later
    except Exception:
        # What is wrong with it, ipykernel says, which imports it again.
        for name in [m for m in sys.modules if m.partition(".")[0] == "IPython"]:
            del sys.modules[name]
    for name, module in stand_ins.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


_cubby()
del _cubby
import runpy  # noqa: E402

runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
