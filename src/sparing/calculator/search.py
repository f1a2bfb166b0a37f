"""A resumable search for sizes and rates over the published spaces, with Optuna, in a file."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.calculator.regression import fit_predictor, published_recipe, value_task
from sparing.core.errors import DataError, Unsupported, UsageError, nearest
from sparing.core.locking import held_alone
from sparing.engines.workers import Workers

if TYPE_CHECKING:
    import optuna

Choose = Callable[["optuna.Trial"], dict[str, Any]]
FILE = "search.db"


@dataclass(frozen=True)
class BestTrial:
    """The best trial so far: ``loss`` is the squared error on the validation sums."""

    predictor: str
    trials: int
    loss: float
    learning_rate: float
    options: dict[str, Any]


def _feed_forward(trial: optuna.Trial) -> dict[str, Any]:
    """1 to 16 layers of 1 to 512 neurons; dropout none or a tenth."""
    layers = trial.suggest_int("layers", 1, 16)
    return {
        "hidden": [trial.suggest_int("neurons", 1, 512)] * layers,
        "dropout_share": trial.suggest_categorical("dropout", [0.0, 0.1]),
    }


def _recurrent(trial: optuna.Trial) -> dict[str, Any]:
    return {
        "units": trial.suggest_int("units", 1, 512),
        "layers": trial.suggest_int("layers", 1, 3),
        "dropout_share": trial.suggest_categorical("dropout", [0.0, 0.1]),
    }


def _lstm_attention(trial: optuna.Trial) -> dict[str, Any]:
    return {
        "units": trial.suggest_int("units", 1, 512),
        "bidirectional": trial.suggest_categorical("bidirectional", [False, True]),
    }


def _transformer(trial: optuna.Trial) -> dict[str, Any]:
    """The published space: heads 2, 4, 8; width 32, 64, 128; 2 to 6 layers; 64 to 1,024 inside."""
    return {
        "heads": trial.suggest_categorical("heads", [2, 4, 8]),
        "width": trial.suggest_categorical("width", [32, 64, 128]),
        "layers": trial.suggest_int("layers", 2, 6),
        "feed_forward": trial.suggest_int("feed_forward", 64, 1024),
    }


# Networks not searched in the published code have the sizes of a recurrent network's space.
SPACES: dict[str, Choose] = {
    "feed_forward": _feed_forward,
    "simple_rnn": _recurrent,
    "lstm": _recurrent,
    "gru": _recurrent,
    "activated_rnn": _recurrent,
    "reset_first_gru": _recurrent,
    "lstm_attention": _lstm_attention,
    "transformer": _transformer,
    "xval": _transformer,
}
# The lowest and highest rate of each: the transformers' as published, the others chosen here.
RATES = {"transformer": (1e-7, 1e-2), "xval": (1e-7, 1e-2)}
USUAL_RATES = (1e-4, 3e-2)


def search_predictor(
    name: str,
    trials: int,
    folder: Path,
    *,
    epochs: int = 200,
    seed: int = 0,
    processes: int = 1,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> BestTrial:
    """Run ``trials`` trials of a predictor's sizes and rate, by the loss on the validation sums.

    Trials are stored in ``search.db`` (SQLite) as they end; the same call resumes from there. With
    several ``processes`` so many trials run at a time: which ones then depends on what ends first.
    Raises ``UsageError`` for a predictor without a space, ``Unsupported`` without Optuna, and
    ``DataError`` for a damaged file. Source: the spaces of Mukin, A Predictive Calculator (2025),
    with a Bayesian tuner of 100 trials; here it is Optuna's tree-structured estimator.
    """
    if name not in SPACES:
        raise UsageError(f"there is no space to search for {name!r}{nearest(name, SPACES)}")
    if trials < 1:
        raise UsageError(f"trials must be at least 1; got {trials}")
    _refuse_strangers(folder)
    with held_alone(folder, "search"):
        study = _open(name, folder, epochs, seed)
        trained = partial(loss_of, name, folder, epochs, seed)
        try:
            _run_trials(study, name, trials, processes, trained, on_progress)
        except _storage_errors() as error:
            raise UsageError(f"cannot write to {folder / FILE}: {error}") from error
        best, ended = study.best_trial, _ended(study)
    if best.value is None or not math.isfinite(best.value):
        raise UsageError(f"none of {ended} trials ended with a finite loss: try more")
    on_progress(1.0, "done")
    rate = float(best.params["learning_rate"])
    return BestTrial(name, ended, float(best.value), rate, dict(best.user_attrs["options"]))


def _run_trials(
    study: optuna.Study,
    name: str,
    trials: int,
    processes: int,
    loss: Callable[[dict[str, Any], float], float],
    on_progress: Callable[[float, str], None],
) -> None:
    """Run the trials that are missing; this process alone writes them."""
    if processes == 1:

        def attempt(trial: optuna.Trial) -> float:
            on_progress(_ended(study) / trials, f"trial {_ended(study) + 1} of {trials}")
            return loss(*_suggested(trial, name))

        study.optimize(attempt, n_trials=max(0, trials - _ended(study)))
        return
    with Workers(processes) as workers:
        running: dict[Future[float], optuna.Trial] = {}
        while running or _ended(study) < trials:
            while len(running) < min(processes, trials - _ended(study)):
                trial = study.ask()
                running[workers.submit(loss, *_suggested(trial, name))] = trial
            on_progress(_ended(study) / trials, f"trial {_ended(study) + 1} of {trials}")
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                study.tell(running.pop(future), future.result())


def _refuse_strangers(folder: Path) -> None:
    """Raise ``UsageError`` for a folder with files that are not of a search."""
    if not folder.is_dir() or (folder / FILE).exists():
        return
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if names:
        raise UsageError(f"{folder} is not empty and holds no search (found {names[0]})")


def _storage_errors() -> tuple[type[Exception], ...]:
    """Optuna's errors when its file cannot be written."""
    from optuna.exceptions import StorageInternalError

    return (StorageInternalError, OSError)


def _open(name: str, folder: Path, epochs: int, seed: int) -> optuna.Study:
    """The stored search; interrupted trials count as failed and run again."""
    try:
        import optuna
    except ImportError as error:
        raise Unsupported(
            "a search needs Optuna: pip install '.[search]' in a clone of sparing"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{folder / FILE}",
            study_name=f"{name}, {epochs} epochs, seed {seed}",
            load_if_exists=True,
        )
        # a sampler with the same seed would repeat its suggestions
        drawn = 1_000_003 * seed + len(study.trials)
        # with the constant liar it keeps away from trials that have not ended
        study.sampler = optuna.samplers.TPESampler(seed=drawn, constant_liar=True)
    except Exception as error:  # SQLAlchemy's own errors; it is not a dependency
        raise DataError(f"{folder / FILE} is not a search of this version, or damaged") from error
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _ended(study: optuna.Study) -> int:
    import optuna

    return len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE]))


def _suggested(trial: optuna.Trial, name: str) -> tuple[dict[str, Any], float]:
    """The sizes and the learning rate of a trial, which it remembers."""
    low, high = RATES.get(name, USUAL_RATES)
    options = SPACES[name](trial)
    rate = trial.suggest_float("learning_rate", low, high, log=True)
    trial.set_user_attr("options", options)
    return options, rate


def loss_of(
    name: str, folder: Path, epochs: int, seed: int, options: dict[str, Any], rate: float
) -> float:
    """The validation loss after training; one that is not finite is the worst possible."""
    recipe = replace(published_recipe(name, rate, seed=seed), epochs=epochs)
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=folder) as trial_folder:
        try:
            _, result = fit_predictor(name, options, recipe, Path(trial_folder), task=value_task())
        except UsageError as error:
            if "loss" not in str(error):
                raise
            return math.inf
    return result.validation_loss
