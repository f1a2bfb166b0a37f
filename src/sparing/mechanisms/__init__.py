"""One file is one mechanism; the file's name is its public name.

``sparing.mechanisms()`` lists the names. The package itself is callable, so the list and the
package share one name, and listing imports nothing, not even torch.
"""

from __future__ import annotations

import sys
from types import ModuleType

from sparing.core.folder import Folder


class _Names(ModuleType):
    """A package that returns the names of its entries when it is called."""

    def __call__(self) -> list[str]:
        """The names of all mechanisms, sorted."""
        return Folder(__name__, "mechanism").names()


sys.modules[__name__].__class__ = _Names
