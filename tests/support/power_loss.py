"""What a disk may hold after a power loss: what was synced, and any part of what was not, in any order."""

import os
import threading
from pathlib import Path

NAMES = ("open", "write", "pwrite", "fsync", "ftruncate", "rename", "link", "unlink")


class Disk:
    """Takes down what this process does to the files of a directory, and makes what a crash may leave."""

    def __init__(self, directory, monkeypatch):
        self._directory = Path(directory)
        self._real = {name: getattr(os, name) for name in NAMES}
        self._lock = threading.RLock()
        self._inodes = {}  # of a name, now
        self._descriptors = {}
        self._count = 0
        self.trace = []
        for name in NAMES:
            monkeypatch.setattr(os, name, self._watched(name))

    def _watched(self, name):
        def call(*arguments, **options):
            with self._lock:
                was = self._name(arguments[0]) if name == "open" else None
                is_new = was is not None and not (self._directory / was).exists()
                result = self._real[name](*arguments, **options)
                getattr(self, f"_{name}")(result, is_new, *arguments)
                return result

        return call

    def _name(self, path):
        path = Path(path) if isinstance(path, str | os.PathLike) else Path()
        return path.name if path.parent == self._directory else None

    def note(self, **facts):
        """Put something of the test's own into the trace."""
        with self._lock:
            self.trace.append(("note", facts))

    def _open(self, descriptor, is_new, path, flags, *_):
        self._descriptors.pop(descriptor, None)
        name = self._name(path)
        if Path(path) == self._directory:
            self._descriptors[descriptor] = "directory"
        elif name is not None:
            if is_new:
                self._count += 1
                self._inodes[name] = self._count
                self.trace.append(("name", name, self._count))
            if flags & os.O_TRUNC:
                self.trace.append(("truncate", self._inodes[name], 0))
            self._descriptors[descriptor] = self._inodes[name]

    def _write(self, written, _, descriptor, data):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self.trace.append(("write", inode, None, bytes(data)[:written]))

    def _pwrite(self, written, _, descriptor, data, position):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self.trace.append(("write", inode, position, bytes(data)[:written]))

    def _ftruncate(self, _result, _, descriptor, size):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self.trace.append(("truncate", inode, size))

    def _fsync(self, _result, _, descriptor):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self.trace.append(("sync", inode))

    def _rename(self, _result, _, source, target):
        if (name := self._name(source)) is not None:
            self._inodes[self._name(target)] = self._inodes.pop(name)
            self.trace.append(("rename", name, self._name(target)))

    def _link(self, _result, _, source, target):
        if (name := self._name(source)) is not None:
            self._inodes[self._name(target)] = self._inodes[name]
            self.trace.append(("name", self._name(target), self._inodes[name]))

    def _unlink(self, _result, _, path):
        if (name := self._name(path)) is not None:
            self._inodes.pop(name, None)
            self.trace.append(("unlink", name))

    def crash(self, at, chance, directory):
        """Write what may be left after so many steps; gives the notes until then, later ones over earlier."""
        left = _Left()
        for step in self.trace[:at]:
            left.take(step)
        for name, content in left.after_a_crash(chance).items():
            (Path(directory) / name).write_bytes(content)
        return left.notes


class _Left:
    """Files and names: as programs see them, and as they are on the disk for certain."""

    def __init__(self):
        self.notes = {}
        self._seen, self._durable = {}, {}
        self._names, self._pending = {}, []

    def take(self, step):
        getattr(self, f"_{step[0]}")(*step[1:])

    def _note(self, facts):
        self.notes.update(facts)

    def _name(self, name, inode):
        self._pending.append(("name", name, inode))

    def _rename(self, source, target):
        self._pending.append(("rename", source, target))

    def _unlink(self, name):
        self._pending.append(("unlink", name))

    def _write(self, inode, position, data):
        if inode != "directory":
            seen = self._seen.setdefault(inode, b"")
            at = len(seen) if position is None else position
            self._seen[inode] = seen[:at] + data + seen[at + len(data) :]

    def _truncate(self, inode, size):
        self._seen[inode] = self._seen.get(inode, b"")[:size]

    def _sync(self, inode):
        if inode == "directory":
            self._names = _applied(self._names, self._pending)
            self._pending = []
        else:
            self._durable[inode] = self._seen.get(inode, b"")

    def after_a_crash(self, chance):
        share = chance.choice([0, 0.3, 0.5, 0.7, 1])
        some = [one for one in self._pending if chance.random() < share]
        return {name: self._content(inode, chance) for name, inode in _applied(self._names, some).items()}

    def _content(self, inode, chance):
        seen, durable = self._seen.get(inode, b""), self._durable.get(inode, b"")
        if seen.startswith(durable):
            return seen[: chance.choice([len(durable), chance.randint(len(durable), len(seen)), len(seen)])]
        return chance.choice([seen, durable])


def _applied(names, changes):
    names = dict(names)
    for kind, name, *rest in changes:
        if kind == "name":
            names[name] = rest[0]
        elif kind == "unlink":
            names.pop(name, None)
        elif name in names:
            names[rest[0]] = names.pop(name)
    return names
