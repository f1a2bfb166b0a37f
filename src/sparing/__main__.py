"""``python -m sparing`` is the command line."""

from __future__ import annotations

from sparing.cli import main

if __name__ == "__main__":
    main()
