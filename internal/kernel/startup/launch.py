def _launch():
    import sys

    # The directory that it starts in has the user's files. ipykernel takes it out of
    # the path until it has begun, and so does this.
    here = sys.path[:1] == [""]
    if here:
        del sys.path[0]
    _read_at_once()
    import runpy

    try:
        if not {"IPython", "jedi"} & set(sys.modules):
            _without_what_waits()
    finally:
        if here:
            sys.path.insert(0, "")
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)


def _read_at_once():
    # Python reads the file of a module with ten system calls, which cost more than
    # the reading, most of all in gVisor. Four do.
    try:
        import posix
        from _frozen_importlib_external import SourceFileLoader

        slowly = SourceFileLoader.get_data

        def get_data(self, path):
            file = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
            try:
                size = posix.fstat(file).st_size
                data = posix.read(file, size)
            finally:
                posix.close(file)
            # One that is not read at once, or does not say how large it is.
            return data if 0 < len(data) == size else slowly(self, path)

        SourceFileLoader.get_data = get_data
    except Exception:
        pass  # a Python of another make reads in its own way


def _without_what_waits():
    # A third of what a kernel imports as it starts is IPython's terminal, for one name
    # that a kernel has no use for, and jedi, which completes code. Both are imported
    # when somebody asks for them.
    import importlib.util
    import sys
    from types import ModuleType

    class Jedi(ModuleType):
        # In the place of jedi in IPython's module for completion, and nowhere else.
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            at = sys.path.index("") if "" in sys.path else None
            if at is not None:
                del sys.path[at]
            try:
                real = importlib.import_module("jedi")
            except Exception:
                # As when IPython finds that out by itself: it completes without.
                completer = sys.modules["IPython.core.completer"]
                completer.JEDI_INSTALLED = False
                shell = sys.modules["IPython"].get_ipython()
                if shell is not None:
                    shell.Completer.use_jedi = False
                return Nothing
            finally:
                if at is not None:
                    sys.path.insert(at, "")
            # What IPython has set as it was imported.
            settings = vars(vars(self).pop("settings", ModuleType("")))
            vars(real.settings).update({k: v for k, v in settings.items() if k[:2] != "__"})
            return getattr(real, name)

    class Nothing:
        def __init__(self, *args, **kwargs):
            pass

    def of_terminal(name):
        if name in ("embed", "interactiveshell", "debugger", "prompts", "ipapp", "magics", "ptutils", "shortcuts"):
            importlib.import_module("IPython.terminal.embed")
            if "IPython.terminal." + name in sys.modules:
                return sys.modules["IPython.terminal." + name]
        raise AttributeError(f"module 'IPython.terminal' has no attribute {name!r}")

    def of_ipython(name):
        if name == "embed":
            return importlib.import_module("IPython.terminal.embed").embed
        if inherited is not None:
            return inherited(name)
        raise AttributeError(f"module 'IPython' has no attribute {name!r}")

    stand_ins = {}

    def stand_in(name, kind=ModuleType):
        stand_ins[name] = sys.modules[name] = kind(name)
        return stand_ins[name]

    try:
        stand_in("IPython.terminal.embed").embed = None
        if importlib.util.find_spec("jedi"):
            stand_in("jedi", Jedi).settings = ModuleType("jedi.settings")
            for name in ("jedi.api", "jedi.api.helpers", "jedi.api.classes"):
                stand_in(name)
        import IPython
        import IPython.core.completer
        import IPython.terminal

        inherited = getattr(IPython, "__getattr__", None)
        if IPython.__dict__.get("embed", 0) is None:
            del IPython.embed
            IPython.__getattr__, IPython.terminal.__getattr__ = of_ipython, of_terminal
    except Exception:
        # What is wrong with it, ipykernel says, which imports it again.
        for name in [m for m in sys.modules if m.partition(".")[0] == "IPython"]:
            del sys.modules[name]
    for name, module in stand_ins.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


_launch()
