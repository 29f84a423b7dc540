def _launch():
    import sys

    # The directory that it starts in has the user's files. ipykernel takes it out of
    # the path until it has begun, and so does this.
    here = sys.path[:1] == [""]
    if here:
        del sys.path[0]
    _read_at_once()
    import gc
    import runpy

    # What modules are made of stays: it is not looked through for garbage, now or later.
    collects = gc.isenabled()
    gc.disable()
    try:
        if not {"IPython", "ipykernel", "jedi", "debugpy", "psutil"} & set(sys.modules):
            forget = _gathered() if here else None
            try:
                _without_what_waits()
            finally:
                if forget:
                    forget()
    finally:
        if hasattr(gc, "freeze"):  # PyPy has none
            gc.freeze()
        if collects:
            gc.enable()
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


def _gathered():
    # An image may have the code of all that a kernel imports in one file, which its
    # kernel-modules.py writes and describes. Python would look for each module in several
    # directories and read its cache; this asks for the time and the size of its source, which
    # tell it as much: a module that was changed, or that comes first somewhere else, is
    # left to Python. What it returns ends that.
    import sys

    try:
        import marshal
        import mmap
        import posix
        from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
        from importlib.util import MAGIC_NUMBER

        file = posix.open("/usr/lib/cubby/kernel-modules", posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            data = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        finally:
            posix.close(file)
        size, begin = (int.from_bytes(data[at : at + 8], "little") for at in (4, 12))
        if data[:4] != MAGIC_NUMBER or len(data) != size or sys.flags.optimize:
            return None
        index = marshal.loads(data[20:begin])
        before = sys.meta_path.index(PathFinder)
    except Exception:
        return None

    listings = {}

    def has(folder, name):
        if folder not in listings:
            try:
                listings[folder] = {file.partition(".")[0] for file in posix.listdir(folder)}
            except NotADirectoryError:
                listings[folder] = None  # an archive: whoever reads it knows
            except OSError:
                listings[folder] = ()
        return listings[folder] is None or name in listings[folder]

    class Loader(SourceFileLoader):
        def get_code(self, name):
            # Whoever asks again is told what stands in the file of the module.
            self.__class__ = SourceFileLoader
            at, length = index[name][-2:]
            try:
                return marshal.loads(data[begin + at : begin + at + length])
            except (EOFError, TypeError, ValueError):
                return self.get_code(name)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in index:
                return None
            source, package, time, size, _, _ = index[name]
            folder = source.rpartition("/")[0]
            within = folder.rpartition("/")[0] if package else folder
            for entry in sys.path if path is None else path:
                if entry == within:
                    break
                if not isinstance(entry, str) or entry[:1] != "/" or has(entry, name.rpartition(".")[2]):
                    return None
            else:
                return None
            try:
                found = posix.stat(source)
            except OSError:
                return None
            if (int(found.st_mtime), found.st_size) != (time, size):
                return None
            spec = ModuleSpec(name, Loader(name, source), origin=source, is_package=package)
            spec.has_location = True
            if package:
                spec.submodule_search_locations.append(folder)
            return spec

    def forget():
        sys.meta_path.remove(Finder)
        data.close()

    sys.meta_path.insert(before, Finder)
    return forget


def _without_what_waits():
    # Half of what a kernel imports as it starts is IPython's terminal, for one name that
    # a kernel has no use for, jedi, which completes code, and debugpy and psutil, for messages
    # that the agent does not send. They are imported when somebody asks for them.
    import importlib.util
    import sys
    from types import ModuleType

    class Later(ModuleType):
        # In the place of a module in one that imports it, and nowhere else.
        def real(self):
            name = self.__name__
            if sys.modules.get(name) is self:
                del sys.modules[name]
            at = sys.path.index("") if "" in sys.path else None
            if at is not None:
                del sys.path[at]
            try:
                return importlib.import_module(name)
            finally:
                if at is not None:
                    sys.path.insert(at, "")

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            if "__real" not in vars(self):
                vars(self)["__real"] = self.real()
            return getattr(vars(self)["__real"], name)

    class Jedi(Later):
        def real(self):
            try:
                jedi = super().real()
            except Exception:
                # As when IPython finds that out by itself: it completes without.
                completer = sys.modules["IPython.core.completer"]
                completer.JEDI_INSTALLED = False
                shell = sys.modules["IPython"].get_ipython()
                if shell is not None:
                    shell.Completer.use_jedi = False
                jedi = ModuleType(self.__name__)
                jedi.__getattr__ = lambda name: Nothing
                return jedi
            # What IPython has set as it was imported.
            settings = vars(vars(self).pop("settings", ModuleType("")))
            vars(jedi.settings).update({k: v for k, v in settings.items() if k[:2] != "__"})
            return jedi

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
        stand_ins["debugpy"] = sys.modules["debugpy"] = None
        if importlib.util.find_spec("psutil"):
            stand_in("psutil", Later)
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
    # What a kernel would import a moment later; the list is kernel-modules.py's too.
    for name in (
        "ipykernel.debugger",
        "ipykernel.kernelapp",
        "ipykernel.zmqshell",
        "tornado.platform.asyncio",
        "traitlets.config.argcomplete_config",
        "IPython.core.completerlib",
        "IPython.extensions.storemagic",
    ):
        try:
            importlib.import_module(name)
        except Exception:
            pass  # it has none of that name, or says what is wrong when it is imported again
    for name, module in stand_ins.items():
        if sys.modules.get(name, name) is module:
            del sys.modules[name]


_launch()
