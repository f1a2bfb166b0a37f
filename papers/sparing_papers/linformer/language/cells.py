"""The Linformer study's language part: masked and causal models, transfer, and a translation.

``LanguageOptions`` hold the settings, ``language_cells`` the trainings. ``notes`` say what the
texts are and what was left out. The paper's own runs are the same cells with other options:
``corpus="wikitext:wikitext-103-raw-v1"`` and more tokens.

Source: Wang et al., 2020, arXiv 2006.04768, section 5 (Figure 3, Table 2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.experiment.run import Cell
from sparing.tasks.shared.files import given_folder
from sparing_papers.linformer.language import prose
from sparing_papers.linformer.language.causal import causal_cells, is_causal
from sparing_papers.linformer.language.corpus import (
    AUTO,
    GRAMMAR,
    REVIEWS,
    WIKITEXT,
    corpus_of,
    files_of,
    require_corpus,
    title_of,
)
from sparing_papers.linformer.language.masked import masked_cells
from sparing_papers.linformer.language.transfer import (
    AGREEMENT,
    SST2,
    transfer_cells,
    transfer_task,
)
from sparing_papers.linformer.language.translation import translation_cells
from sparing_papers.linformer.language.work import (
    LanguageOptions,
    LanguageWork,
)

SENTENCES = ("glue/SST-2", "SST-2")  # below the data folder

TITLES = {
    GRAMMAR: "texts of a generated grammar, with agreement at a distance",
    REVIEWS: "IMDB's film reviews, without their labels",
    SST2: "SST-2, in the words of the pretraining",
    AGREEMENT: "sentences of the grammar, half of them with a verb that does not agree",
}
PARTS: dict[str, Callable[[LanguageWork, int], list[Cell]]] = {
    "masked": masked_cells,
    "transfer": transfer_cells,
    "causal": causal_cells,
    "translation": translation_cells,
}


def language_cells(
    options: LanguageOptions,
    folder: Path,
    data: Path | None,
    *,
    seeds: int,
    thread_count: int,
    watts_per_core: float,
) -> list[Cell]:
    """The cells of every question of the run; their keys begin with ``language/``.

    Nothing is read before the first of them runs. Raises ``UsageError`` for less than one seed, for
    what is no corpus, and for variants to fine-tune that are not pretrained.
    """
    require_corpus(options.corpus)
    options.require_pretrained()
    if seeds < 1:
        raise UsageError(f"seeds must be at least 1; got {seeds}")
    work = LanguageWork(options, folder, data, thread_count, watts_per_core)
    cells = [cell for name in options.questions for cell in PARTS[name](work, seeds)]
    return [replace(cell, key=f"language/{cell.key}") for cell in cells]


def digests(options: LanguageOptions, data: Path | None) -> dict[str, str]:
    """What identifies the texts: the names and sizes of their files; nothing is read."""
    corpus, root = corpus_of(options.corpus, data), given_folder(data)
    texts = {f"the corpus {title_of(corpus)}": files_of(corpus, data)}
    task = transfer_task(options.transfer.task, corpus, data)
    if root is not None and "transfer" in options.questions and task == SST2:
        there = [path for folder in SENTENCES for path in (root / folder).glob("*.tsv*")]
        texts["the sentences of sst2"] = sorted(path for path in there if path.is_file())
    return {name: _names_and_sizes(files) for name, files in texts.items() if files}


def _names_and_sizes(files: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def notes(options: LanguageOptions, data: Path | None) -> list[str]:
    """What the texts are, and what is left out and why; nothing is read."""
    corpus = corpus_of(options.corpus, data)
    texts = [prose("corpus", texts=TITLES.get(corpus, title_of(corpus)))]
    if options.corpus == AUTO and corpus == GRAMMAR:
        texts.append(prose("no-reviews"))
    if "transfer" in options.questions:
        task = transfer_task(options.transfer.task, corpus, data)
        texts.append(prose("transfer", task=TITLES[task]))
        if task == AGREEMENT and options.transfer.task == AUTO:
            texts.append(prose("no-sentences"))
    if "causal" in options.questions:
        refused = [a for a in options.causal.variants if not is_causal(a, options.causal.tokens)]
        texts += [prose("not-causal", arm=arm) for arm in refused]
    if "translation" in options.questions:
        texts.append(prose("translation"))
    return texts if corpus.startswith(WIKITEXT) else [*texts, prose("little-text")]
