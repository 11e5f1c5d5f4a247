"""The part of oz that may be compiled; all else about the package stands in setup.cfg.

It is optional: without a compiler, on Windows and in other Pythons than CPython oz is installed without it.
"""

import sys

from setuptools import Extension, setup

HOT = Extension(
    "oz.compiled._hot",
    sources=["oz/compiled/batches.c", "oz/compiled/module.c"],
    depends=["oz/compiled/hot.h"],
    optional=True,
)

setup(ext_modules=[HOT] if sys.implementation.name == "cpython" and sys.platform != "win32" else [])
