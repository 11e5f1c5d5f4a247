"""The part of oz that may be compiled; all else about the package stands in setup.cfg.

It is optional: without a compiler, on Windows and in other Pythons than CPython oz is installed without it.
As when oz is imported, `OZ_COMPILED=0` leaves it out; `OZ_COMPILED=require` fails where it cannot be built.
"""

import os
import sys

from setuptools import Extension, setup

SOURCES = (
    "links_body",
    "links_calls",
    "links_io",
    "links_lone",
    "module",
    "plain",
    "read",
    "receive",
    "rules",
)

choice = os.environ.get("OZ_COMPILED")
hot = Extension(
    "oz.compiled._hot",
    sources=[f"oz/compiled/{name}.c" for name in SOURCES],
    depends=["oz/compiled/hot.h", "oz/compiled/links.h", "oz/compiled/plain.h"],
    # No directory of the machine that builds it gets into it.
    extra_compile_args=["-g0"],
    optional=choice != "require",
)
can_be_built = sys.implementation.name == "cpython" and sys.platform != "win32"

setup(ext_modules=[hot] if choice != "0" and can_be_built else [])
