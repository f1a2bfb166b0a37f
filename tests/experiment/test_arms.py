"""Groups of mechanisms by name, and options that fit the task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparing.compare.study import Options
from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.errors import UsageError
from sparing.core.options import option_defaults
from sparing.experiment.arms import COUNTS_TOKENS, expand, family_of, fitted_options
from sparing.train import default_recipe


def test_all_are_the_arms_by_family_with_the_dense_one_first():
    arms = expand(["all"])
    assert arms[0] == "softmax"
    assert set(arms) == {n for n in MECHANISMS.names() if mechanism_class(n).traits.arm}
    families = [family_of(name) for name in arms]
    assert families == sorted(families, key=families.index)


def test_groups_and_names_mix_and_each_arm_comes_once():
    assert expand(["controls"]) == ("none", "uniform")
    assert expand(["linear", "family:kernel"])[0] == "linear"
    mixed = expand(["window", "family:kernel", "kernel", "all"])
    assert len(set(mixed)) == len(mixed)
    assert mixed[0] == "window"
    assert "kernel" in mixed


def test_the_family_kernel_and_the_mechanism_kernel_are_told_apart():
    assert expand(["kernel"]) == ("kernel",)
    assert "linear" in expand(["family:kernel"])


def test_another_task_brings_its_own_recipe_and_keeps_what_was_changed():
    options = Options(task="digits")
    options = replace(options, recipe=replace(options.recipe, epochs=3))
    other = replace(options, task="listops")
    assert other.recipe == replace(default_recipe("listops"), epochs=3)
    assert other.recipe.learning_rate != options.recipe.learning_rate
    with pytest.raises(UsageError, match=r"recipe\.seed"):
        replace(options, recipe=replace(options.recipe, seed=7))


def test_an_unknown_family_is_named():
    with pytest.raises(UsageError, match="unknown family 'sprase'; did you mean 'sparse'"):
        expand(["family:sprase"])


def test_a_name_given_twice_is_still_refused():
    with pytest.raises(UsageError, match="mechanisms are named twice"):
        Options(mechanisms=("linear", "linear"))


def test_options_of_a_study_hold_the_names_written_out():
    assert Options(mechanisms=("controls",)).mechanisms == ("softmax", "none", "uniform")


@pytest.mark.parametrize("name", MECHANISMS.names())
@pytest.mark.parametrize("tokens", [16, 129, 100_000])
def test_options_that_count_tokens_are_fitted(name, tokens):
    defaults = option_defaults(mechanism_class(name))
    fitted = fitted_options(name, tokens)
    assert set(fitted) <= set(COUNTS_TOKENS) & set(defaults)
    for option, value in fitted.items():
        assert 1 <= value <= max(1, min(defaults[option], tokens // COUNTS_TOKENS[option]))
    if tokens == 100_000:
        assert fitted == {option: defaults[option] for option in fitted}
