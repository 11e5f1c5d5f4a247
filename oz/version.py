"""The version of oz, which setup.cfg reads from here; and whether the package `oz` is that of ozmq at all.

PyPI has another package `oz`, a web framework, with a package and a command of the same names. Installed
into one environment, each overwrites files of the other in silence, and to uninstall one breaks the other.
"""

import os
import sys
import warnings
from types import ModuleType

VERSION = "0.1.0"

_AGAIN = "python -m pip uninstall -y oz ozmq, and install ozmq again"


def check_package(package: ModuleType | None) -> None:
    """Refuse to work in the package of somebody else.

    Args:
        package: what `import oz` gives, as far as it has been imported.

    Raises:
        ImportError: the other `oz` has replaced this one, or took part of it along; says what to do.
    """
    if hasattr(package, "uimodule"):
        raise ImportError(
            f"another package, PyPI's `oz`, was installed over that of ozmq: {_AGAIN}", name="oz"
        )
    spec = getattr(package, "__spec__", None)
    if spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
        raise ImportError(
            f"oz/__init__.py is missing, as if another package, PyPI's `oz`, had been uninstalled: {_AGAIN}",
            name="oz",
        )


def warn_of_other(directory: str) -> None:
    """Warn when the files of the other `oz` lie in the directory of this package."""
    if os.path.exists(os.path.join(directory, "aws_cdn")):
        warnings.warn(
            f"another package, PyPI's `oz`, is installed in {directory} too; if it is uninstalled, this one "
            f"breaks: {_AGAIN}",
            RuntimeWarning,
            stacklevel=3,
        )


check_package(sys.modules.get("oz"))
