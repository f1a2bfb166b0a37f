"""Silence during a call, since transformers' bars and log levels are global."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import huggingface_hub.utils.logging as hub_logging
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from transformers.utils import logging


@contextmanager
def quiet() -> Iterator[None]:
    """No bars, and no log lines below errors, from transformers and the hub; restored after."""
    verbosity, hub_verbosity = logging.get_verbosity(), hub_logging.get_verbosity()
    bars, hub_bars_hidden = logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    logging.set_verbosity(logging.ERROR)
    hub_logging.set_verbosity(logging.ERROR)
    logging.disable_progress_bar()
    disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            logging.enable_progress_bar()
        if hub_bars_hidden:
            disable_progress_bars()
        else:
            enable_progress_bars()
