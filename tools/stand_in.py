"""A stand-in for a package that is not installed, so that what imports it can be looked at."""

import importlib.abc
import importlib.machinery
import types


class Anything:
    """An object that may be made and called with anything, and has what is asked of it."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take anything."""

    def __call__(self, *_: object, **__: object) -> "Anything":
        """Give another one."""
        return Anything()

    def __getattr__(self, name: str) -> "Anything":
        """Give another one."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a package that is not installed as modules in which every name is a class.

    The pages name what oz has, not what PySpark has: whoever writes them needs no Spark.
    """

    def __init__(self, package: str) -> None:
        """Stand in for a package and all below it."""
        self._package = package

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find what belongs to the package."""
        if fullname.partition(".")[0] != self._package:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module every name that is asked for."""

        def made(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (Anything,), {"__module__": module.__name__})

        module.__dict__["__getattr__"] = made
