"""The folder is the registry: a file's name is the public name of what it holds."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from types import ModuleType

from sparing.core.errors import UsageError, nearest


@dataclass(frozen=True)
class Folder:
    """One folder of entries, listed without importing any of them.

    ``package`` is the folder's dotted name, ``kind`` the word for one entry in messages.
    Files whose names begin with an underscore are shared code, not entries.
    """

    package: str
    kind: str

    def names(self) -> list[str]:
        """All entries, sorted; nothing is imported except the folder's (empty) parents."""
        spec = importlib.util.find_spec(self.package)
        places = spec.submodule_search_locations if spec else None
        found = pkgutil.iter_modules(places or [])
        return sorted(module.name for module in found if not module.name.startswith("_"))

    def load(self, name: str) -> ModuleType:
        """The module behind ``name``; a dotted path loads a third party's module.

        Raises ``UsageError`` with the nearest names when there is none.
        """
        if "." in name.strip(".") and not name.startswith("."):
            return self._load_foreign(name)
        if name not in self.names():
            raise UsageError(f"unknown {self.kind} {name!r}{nearest(name, self.names())}")
        return importlib.import_module(f"{self.package}.{name}")

    def _load_foreign(self, path: str) -> ModuleType:
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise
            raise UsageError(f"no module {path!r} to take a {self.kind} from") from error
