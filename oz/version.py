"""Version of oz, and a check for a name conflict. The file setup.cfg reads the version.

The package index PyPI has another project named `oz`, a web framework. The Python package and the command of this
project are also named `oz`. If both projects are installed in one environment, each overwrites files of the other, and
the removal of one breaks the other.
"""

import os
import sys
import warnings
from types import ModuleType

VERSION = "0.1.0"

_AGAIN = "python -m pip uninstall -y oz ozmq, and install ozmq again"


def check_package(package: ModuleType | None) -> None:
    """Check that the other project has not replaced this package.

    Args:
        package: module `oz`, which may still be loading.

    Raises:
        ImportError: the other project `oz` has replaced or removed files of this package.
    """
    if hasattr(package, "uimodule"):
        raise ImportError(f"the package `oz` of PyPI has overwritten files of ozmq: {_AGAIN}", name="oz")
    spec = getattr(package, "__spec__", None)
    if spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
        raise ImportError(
            f"oz/__init__.py is missing; probably the package `oz` of PyPI was uninstalled: {_AGAIN}",
            name="oz",
        )


def warn_of_other(directory: str) -> None:
    """Warn if the directory of this package has files of the other project `oz`."""
    if os.path.exists(os.path.join(directory, "aws_cdn")):
        warnings.warn(
            f"the package `oz` of PyPI is installed in {directory} too, and its removal breaks ozmq: {_AGAIN}",
            RuntimeWarning,
            stacklevel=3,
        )


check_package(sys.modules.get("oz"))
