"""The folder is the registry: a file's name is the public name of its entry."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from sparing.core.errors import UsageError, nearest

IMPORTED: list[str] = []  # modules that the user named: other processes import them too
_SHOWN = 40  # characters of a foreign name in a message


@dataclass(frozen=True)
class Folder:
    """One folder of entries, listed without importing any of them.

    ``package`` is the folder's dotted name, ``kind`` the word for one entry in messages. Folders,
    and files with a leading underscore in their names, are shared code, not entries.
    """

    package: str
    kind: str

    def names(self) -> list[str]:
        """All entries, sorted; nothing is imported except the folder's (empty) parents."""
        spec = importlib.util.find_spec(self.package)
        places = spec.submodule_search_locations if spec else None
        modules = pkgutil.iter_modules(places or [])
        return sorted(
            module.name for module in modules if not (module.ispkg or module.name.startswith("_"))
        )

    def load(self, name: str, allowed: Sequence[str] = ()) -> ModuleType:
        """The module of ``name``: one of this folder, or a module that is imported already.

        Names come from files too, and a file must not choose the code that runs. A dotted name is
        imported only if it is one of ``allowed`` or in a package that ``allowed`` names. For a name
        typed by the user, pass ``allowed=(name,)``.

        Raises ``UsageError`` with the nearest names when there is none.
        """
        if name in self.names():
            return importlib.import_module(f"{self.package}.{name}")
        if "." not in name.strip(".") or name.startswith("."):
            raise UsageError(f"unknown {self.kind} {name[:_SHOWN]!r}{nearest(name, self.names())}")
        if name in sys.modules:
            return sys.modules[name]
        if not any(name == package or name.startswith(f"{package}.") for package in allowed):
            raise UsageError(
                f"{self.kind} {name[:_SHOWN]!r} is not of sparing and its module is not imported: "
                "import it first if you trust it"
            )
        return self._load_foreign(name)

    def _load_foreign(self, path: str) -> ModuleType:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            raise UsageError(f"no module {path!r} to take a {self.kind} from") from error
