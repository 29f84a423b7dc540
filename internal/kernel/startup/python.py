def _cubby():
    import os
    import site
    import sys
    from base64 import b64encode

    from IPython import get_ipython

    shell = get_ipython()

    def plain_text():
        # For the traceback, and for programs that the cell starts.
        for style in ("NoColor", "nocolor"):
            try:
                shell.run_line_magic("colors", style)
                break
            except Exception:
                continue
        for name in ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
            os.environ.pop(name, None)
        os.environ["TERM"] = "dumb"

    def user_packages():
        # The directory has to be there for what pip puts into it later.
        if site.ENABLE_USER_SITE:
            packages = site.getusersitepackages()
            os.makedirs(packages, exist_ok=True)
            before = list(sys.path)
            site.addsitedir(packages)
            # Python puts it in front of the packages of the system where it is
            # there from the start: every kernel has the same path.
            added = [p for p in sys.path if p not in before]
            system = [p for p in before if p in site.getsitepackages()]
            if added and system:
                at = before.index(system[0])
                sys.path[:] = before[:at] + added + before[at:]

    def pace():
        # What is shown faster than it is read would fill the memory, or be
        # dropped: whoever shows it waits instead.
        import threading

        import zmq

        outlet = shell.kernel.iopub_socket.io_thread
        room, ahead, most = threading.Condition(), 0, 1 << 20

        def bound():
            outlet.socket.setsockopt(zmq.XPUB_NODROP, 1)
            # In messages, and more than this connection has had before: only
            # from now on the other end tells often what it has taken.
            outlet.socket.setsockopt(zmq.SNDHWM, 16)

        outlet.schedule(bound)

        def send_paced(msg, *args, **kwargs):
            nonlocal ahead
            size = sum(map(len, msg))

            def send():
                nonlocal ahead
                try:
                    outlet._really_send(msg, *args, **kwargs)
                finally:
                    with room:
                        ahead -= size
                        room.notify_all()

            if outlet.thread.is_alive() and threading.current_thread() is not outlet.thread:
                with room:
                    room.wait_for(lambda: ahead <= 0 or ahead + size <= most)
                # Without the lock: it may wait for the thread that sends. In
                # this order: an interrupt in between makes the bound wider and
                # does not use it up.
                outlet.schedule(send)
                with room:
                    ahead += size
            else:
                outlet.schedule(lambda: outlet._really_send(msg, *args, **kwargs))

        outlet.send_multipart = send_paced

        def paced(stream):
            write, unsent, piece = stream.write, 0, 1 << 16

            def write_paced(text):
                nonlocal unsent
                if len(text) > piece:
                    return sum(write_paced(text[i : i + piece]) for i in range(0, len(text), piece))
                n = write(text)
                unsent += len(text)
                if unsent >= piece:
                    unsent = 0
                    stream.flush()
                return n

            stream.write = write_paced

        paced(sys.stdout)
        paced(sys.stderr)

    def programs():
        # What is written to the process's own streams, as programs that a cell
        # starts do, comes through a pipe and a thread, late or after the end of
        # the cell. It is taken before what the cell prints next, and before it
        # ends.
        import codecs
        import contextvars
        import fcntl
        import functools
        import select
        import struct
        import termios
        import threading
        from time import monotonic

        main = threading.main_thread().ident
        streams = []

        class Reader(threading.Thread):
            def __init__(self, stream):
                super().__init__(daemon=True)
                self.stream, self.write, self.old = stream, stream.write, stream.watch_fd_thread
                self.pipe = stream._fid
                self.into = getattr(sys, "__" + stream.name + "__").fileno()
                self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
                self.lock = threading.RLock()
                self.next_look = 0

            def replace_old(self):
                stream = self.stream
                stream._should_watch = False
                os.write(self.into, b"\0")
                self.old.join()
                os.set_blocking(self.pipe, False)
                stream._should_watch, stream.watch_fd_thread = True, self
                # For programs that are given the stream.
                stream.fileno = lambda: self.into
                stream.write = self.write_in_order
                self.start()

            def run(self):
                events = select.poll()
                events.register(self.pipe, select.POLLIN)
                while events.poll()[0][1] & select.POLLIN and self.stream._should_watch:
                    with self.lock:
                        self.take()

            def take(self):
                # What is there now, and no more: somebody may go on writing.
                left = struct.unpack("i", fcntl.ioctl(self.pipe, termios.FIONREAD, b"    "))[0]
                while left > 0:
                    try:
                        data = os.read(self.pipe, min(left, 1 << 16))
                    except BlockingIOError:
                        break  # a signal's handler that printed has it
                    left -= len(data)
                    self.write(self.decoder.decode(data))

            def drain(self):
                # It is the running cell's, whoever comes by; a child that was
                # forked has the lock as it was.
                if streams and threading.get_ident() == main:
                    with self.lock:
                        contextvars.Context().run(self.take)

            def finish(self):
                self.drain()
                with self.lock:
                    rest = self.decoder.decode(b"", True)
                    if rest:
                        self.write(rest)

            def write_in_order(self, text):
                # Looking costs as much as printing, and no program is quicker.
                if monotonic() > self.next_look:
                    self.drain()
                    self.next_look = monotonic() + 0.0005
                return self.write(text)

        streams = [Reader(sys.stdout), Reader(sys.stderr)]
        os.register_at_fork(after_in_child=streams.clear)
        for stream in streams:
            stream.replace_old()

        def drained(execute):
            @functools.wraps(execute)
            async def do_execute(*args, **options):
                try:
                    return await execute(*args, **options)
                finally:
                    for stream in streams:
                        stream.finish()

            return do_execute

        shell.kernel.do_execute = drained(shell.kernel.do_execute)

    def at_once():
        # The kernel would rest after each cell, for clients that take its reply
        # for the end of the output; cubby waits for the output's own end.
        shell.kernel._execute_sleep = 0

        # And it would begin with nothing before the thread of the control channel has
        # looked for messages there. No cell counts on one that was sent before it.
        async def looked():
            pass

        shell.kernel._flush_control_queue = looked

    def without_waiting():
        # A cell's end flushes the output four times, and waits each time for the thread
        # that sends it, which costs as much as the rest of a short cell. With nothing
        # to send there is nothing to wait for. That thread passes on what children print
        # too, which are forks of the kernel: as long as there may be one it is waited for.
        stream = type(sys.stdout)
        flush, send = stream.flush, stream._flush
        if hasattr(sys.stdout, "_buffers"):

            def written(self):
                return self._buffers

        else:

            def written(self):
                with self._buffer_lock:
                    return self._buffer.tell()

        forked = False

        def fork():
            nonlocal forked
            forked = True

        def look():
            nonlocal forked
            if forked:
                try:
                    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                except ChildProcessError:
                    forked = False

        os.register_at_fork(after_in_parent=fork)
        shell.events.register("pre_execute", look)

        def sends(self):
            self._sends = True
            try:
                send(self)
            finally:
                self._sends = False

        def flush_written(self):
            # What programs have printed, and C: it comes before what follows.
            drain = getattr(getattr(self, "watch_fd_thread", None), "drain", None)
            if drain:
                drain()
            # What is not there any more may not be sent yet: ask in this order.
            if written(self) or self._sends or forked:
                flush(self)

        stream._sends = False
        stream._flush, stream.flush = sends, flush_written

    def plots():
        # The backend shows the figures of a cell at its end; it is loaded with
        # matplotlib.
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

    def history():
        # In and Out stay; a database on the disk would be written with each cell.
        shell.history_manager.enabled = False

    def interrupts():
        # A signal that comes while the loop sleeps has to wake it: the handler
        # that cancels a cell only leaves it something to do. The loop hears of
        # all signals once it handles one; this one means nothing.
        import asyncio
        import contextlib
        import functools
        import signal
        import threading

        asyncio.get_running_loop().add_signal_handler(signal.SIGURG, lambda: None)

        # ipykernel listens from when it begins with a cell until it has replied, and
        # ends of an interrupt in its own code, or does not reply any more. There an
        # interrupt waits for the cell's code, and is over when that is.
        kernel, events, usual = shell.kernel, shell.events, signal.default_int_handler
        kernel.get_parent("shell")["header"]["msg_type"]  # one that has none stays as it is
        theirs, waiting, inside = usual, False, False
        main = threading.main_thread().ident

        def wait(signum, frame):
            nonlocal waiting
            waiting = True

        def in_between():
            # Neither a cell's code nor another thread.
            return threading.get_ident() == main and signal.getsignal(signal.SIGINT) is wait

        @contextlib.contextmanager
        def listening():
            # With the handler that the cell's code has set, if it has.
            nonlocal theirs
            signal.signal(signal.SIGINT, theirs)
            try:
                yield
            finally:
                theirs = signal.signal(signal.SIGINT, wait)

        begin = kernel.pre_handler_hook

        def pre_handler_hook():
            nonlocal theirs, waiting
            if threading.get_ident() != main or kernel.get_parent("shell")["header"]["msg_type"] != "execute_request":
                return begin()
            theirs, waiting = usual, False
            kernel.saved_sigint_handler = signal.signal(signal.SIGINT, wait)

        run_cell, run_code, trigger = shell.run_cell, shell.run_code, events.trigger

        @functools.wraps(run_code)
        async def listening_code(code, *args, **options):
            nonlocal waiting
            if threading.get_ident() != main:
                return await run_code(code, *args, **options)
            came, waiting = waiting, False
            if not in_between():
                # A cell that awaits has a handler that cancels it.
                if came:
                    signal.raise_signal(signal.SIGINT)
                return await run_code(code, *args, **options)
            with listening():
                if came or waiting:  # or since then, up to the handler
                    waiting = False
                    code, options = compile("raise KeyboardInterrupt", "<interrupt>", "exec"), {**options, "async_": False}
                return await run_code(code, *args, **options)

        @functools.wraps(trigger)
        def listening_trigger(*args, **options):
            if not in_between():
                return trigger(*args, **options)
            with listening():
                return trigger(*args, **options)

        @functools.wraps(run_cell)
        def interruptible_cell(cell, *args, **options):
            nonlocal inside
            if inside or not in_between():
                return run_cell(cell, *args, **options)  # of a cell's own code
            inside = True
            try:
                return run_cell(cell, *args, **options)
            except KeyboardInterrupt:
                # In IPython's code, which made no error of the cell of it.
                return run_cell("raise KeyboardInterrupt", *args, **options)
            finally:
                inside = False

        shell.run_cell, shell.run_code, events.trigger = interruptible_cell, listening_code, listening_trigger
        kernel.pre_handler_hook = pre_handler_hook

    def recordings():
        # Beside HTML that plays them, what they are.
        def of(kind):
            def bundle(media, include=None, exclude=None):
                data = getattr(media, "data", None)
                mime = getattr(media, "mimetype", None) or kind
                if isinstance(data, bytes) and data:
                    return {mime: b64encode(data).decode()}
                if kind == "video/mp4" and getattr(media, "embed", False) and isinstance(data, str):
                    if os.path.isfile(data):
                        with open(data, "rb") as file:
                            return {mime: b64encode(file.read()).decode()}
                    return {mime: data}
                return None

            return bundle

        formatter = shell.display_formatter.mimebundle_formatter
        formatter.for_type_by_name("IPython.lib.display", "Audio", of("audio/wav"))
        formatter.for_type_by_name("IPython.core.display", "Video", of("video/mp4"))

    def coroutines():
        # A coroutine that is a cell's value is awaited, and what it returns is
        # the value: as a cell of its own that counts as part of the first.
        import functools
        import types

        kernel, hook = shell.kernel, shell.displayhook
        waiting = []

        class Hook(type(hook)):
            def __call__(self, result=None):
                if type(result) is types.CoroutineType:
                    waiting.append(result)
                else:
                    super().__call__(result)

        hook.__class__ = Hook
        execute = kernel.do_execute

        @functools.wraps(execute)
        async def do_execute(code, silent, *args, **options):
            waiting.clear()
            reply = await execute(code, silent, *args, **options)
            while waiting and reply["status"] == "ok":
                count = shell.execution_count
                shell.user_ns["__coroutine__"] = waiting.pop()
                shell.execution_count = reply["execution_count"]
                try:
                    reply = await execute("await __coroutine__", silent, False, None, options.get("allow_stdin", False))
                finally:
                    reply["execution_count"] = shell.execution_count
                    shell.execution_count = count
                    shell.user_ns.pop("__coroutine__", None)
            return reply

        kernel.do_execute = do_execute

    def plotly():
        # Its figures are one page each that needs nothing else. The renderer is
        # added when plotly is imported.
        from importlib.abc import MetaPathFinder
        from importlib.util import find_spec

        name = "plotly.io._renderers"

        def add(renderers):
            from IPython.display import display
            from plotly.io._base_renderers import ExternalRenderer

            class Page(ExternalRenderer):
                def render(self, fig_dict):
                    from plotly.io import to_html

                    page = to_html(fig_dict, include_plotlyjs=True, full_html=True, validate=False)
                    display({"text/html": page}, raw=True)

            renderers.renderers["cubby"] = Page()
            if "PLOTLY_RENDERER" not in os.environ:
                renderers.renderers.default = "cubby"

        class Finder(MetaPathFinder):
            def find_spec(self, fullname, path, target=None):
                if fullname != name:
                    return None
                sys.meta_path.remove(self)
                spec = find_spec(name)
                if spec is not None:
                    load = spec.loader.exec_module

                    def exec_module(module):
                        load(module)
                        try:
                            add(module)
                        except Exception:
                            pass  # another plotly than the known ones shows itself in its own way

                    spec.loader.exec_module = exec_module
                return spec

        sys.meta_path.insert(0, Finder())

    def strange_texts():
        # Whether a cell awaits is found by compiling it, which can fail with what
        # nobody expects there: a string of half a character as the first line.
        # The cell's own run says what is wrong, if anything is.
        awaits = shell.should_run_async

        def should_run_async(*args, **options):
            try:
                return awaits(*args, **options)
            except Exception:
                return False

        shell.should_run_async = should_run_async

    for part in (plain_text, user_packages, pace, programs, at_once, without_waiting, plots, history, interrupts, recordings, coroutines, strange_texts, plotly):
        try:
            part()
        except Exception:
            continue  # a shell of another make; the rest may still fit


_cubby()
del _cubby
