"""One file is one mechanism; the file's name is its public name.

``sparing.mechanisms()`` lists the names: the folder itself answers, so that the list and the
package share one word and nothing, torch included, has to be imported for it.
"""

from __future__ import annotations

import sys
from types import ModuleType

from sparing.core.folder import Folder


class _Names(ModuleType):
    """A package that can be called for the names of its entries."""

    def __call__(self) -> list[str]:
        """The names of all mechanisms, sorted."""
        return Folder(__name__, "mechanism").names()


sys.modules[__name__].__class__ = _Names
