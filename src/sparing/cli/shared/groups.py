"""Which verbs ``sparing --help`` shows together, and verbs with sub-commands."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

# In the order of the help: what a person wants to do, and the verbs for it.
PANELS = {
    "Make a model faster": ("advise", "slim", "export", "agree", "prune", "swap"),
    "Choose an attention": ("list", "show", "compare", "measure", "check", "patches"),
    "Use it on many texts": ("predict",),
    "Train and evaluate": ("train", "evaluate", "search"),
    "Papers and runs": ("study", "status", "merge", "report", "pack"),
    "Calculator": ("calculate",),
    "This machine": ("doctor",),
}


class Verbs(TyperGroup):
    """All verbs, in the order of ``PANELS``."""

    # Any: click is a package in some versions of typer and a part of typer in others
    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs' names."""
        return [verb for verbs in PANELS.values() for verb in verbs]


class DefaultGroup(TyperGroup):
    """A verb with sub-commands; arguments that name none of them go to the first one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first sub-command's name before arguments that name none."""
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
