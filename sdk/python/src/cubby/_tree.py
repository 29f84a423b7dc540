"""Local directories to and from tar.

What is unpacked comes from a sandbox and is not trusted: nothing is written outside of the directory, also not through
symlinks, and devices are left out.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_PIECE = 256 << 10


def pack(directory: Path) -> Iterator[bytes]:
    """Give the tar of what is in a directory, piece by piece.

    Symlinks are packed as links; devices, sockets and pipes are left out.
    """
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory} is not a directory")
    for path in _walk(directory):
        name = path.relative_to(directory).as_posix()
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            info = _member(name, path.lstat())
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            yield _header(info)
        elif stat.S_ISDIR(mode):
            info = _member(name, path.lstat())
            info.type = tarfile.DIRTYPE
            yield _header(info)
        elif stat.S_ISREG(mode):
            yield from _pack_file(path, name)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda e: e.name)
    for entry in found:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


def _member(name: str, status: os.stat_result) -> tarfile.TarInfo:
    """Return the header of a path. Whose it is here means nothing inside."""
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _pack_file(path: Path, name: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())  # the size of what is open now
        info = _member(name, status)
        info.size = left = status.st_size
        yield _header(info)
        while left:
            piece = file.read(min(_PIECE, left))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            left -= len(piece)
            yield piece
    yield bytes(-info.size % tarfile.BLOCKSIZE)


def unpack(archive: IO[bytes], directory: Path) -> None:
    """Unpack a tar into a directory, which is made when it is missing.

    Directories get their modes at the end, so that a read-only one can be filled.
    """
    directory.mkdir(parents=True, exist_ok=True)
    modes: dict[Path, int] = {}
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for info in tar:
            name = _clean(info.name)
            if name:
                _unpack_member(tar, info, directory, name, modes)
    for path, mode in reversed(modes.items()):
        path.chmod(mode)


def _clean(name: str) -> str:
    """Return a name of the archive as one below its root, or empty for the root."""
    return posixpath.normpath("/" + name).lstrip("/")


def _unpack_member(tar: tarfile.TarFile, info: tarfile.TarInfo, root: Path, name: str, modes: dict[Path, int]) -> None:
    path = root / name
    _make_parents(root, path)
    mode = info.mode & 0o777
    if info.isdir():
        if not _is_directory(path):
            _make_room(path)
            path.mkdir()
        path.chmod(mode | 0o700)
        modes[path] = mode
    elif info.isreg():
        _make_room(path)
        content = tar.extractfile(info)
        if content is None:
            raise OSError(f"{info.name} has no content")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            shutil.copyfileobj(content, file, _PIECE)
        path.chmod(mode)
        os.utime(path, (info.mtime, info.mtime))
    elif info.issym():
        _make_room(path)
        path.symlink_to(info.linkname)
    elif info.islnk():
        target = root / _clean(info.linkname)
        _check_parents(root, target)
        _make_room(path)
        os.link(target, path, follow_symlinks=False)


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _parents(root: Path, path: Path) -> Iterator[Path]:
    below = root
    for part in path.relative_to(root).parts[:-1]:
        below = below / part
        yield below


def _make_parents(root: Path, path: Path) -> None:
    for parent in _parents(root, path):
        if not _is_directory(parent):
            parent.mkdir()  # fails when something else, a symlink for example, is in the way


def _check_parents(root: Path, path: Path) -> None:
    for parent in _parents(root, path):
        if not _is_directory(parent):
            raise NotADirectoryError(f"{parent} is not a directory")


def _make_room(path: Path) -> None:
    """Remove what stands at a path: opening it would write through a symlink. A directory stays and is an error."""
    if _is_directory(path):
        raise IsADirectoryError(f"{path}: a directory is in the way")
    path.unlink(missing_ok=True)
