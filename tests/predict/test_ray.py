"""A Ray cluster of one node gives the files that worker processes give, bit by bit."""

from __future__ import annotations

import os
import signal
import sys
import warnings

import pytest

import sparing
from sparing.core.errors import UsageError
from sparing.predict import ray_cluster, study
from tests.predict import jobs
from tests.predict.files import contents, texts, write_parquet

SETTINGS = {"rows_a_shard": 16}


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"ray is not installed .*: pip install '.\[ray\]'"):
        ray_cluster.RayWorkers("auto", None, 1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999"])
def test_an_address_where_nothing_answers_is_refused_at_once(address):
    with pytest.raises(UsageError, match=f"no Ray cluster at '{address}'"):
        ray_cluster.RayWorkers(address, None, 1)


@pytest.fixture
def ray(monkeypatch):
    """Ray without its warnings, on a cluster that starts with two processors."""
    import ray

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    initialise = ray.init

    def two(**how):
        if how.get("address") == "local":
            how["num_cpus"] = 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return initialise(**how)

    monkeypatch.setattr(ray, "init", two)
    yield ray
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_cluster_gives_the_same_bytes(ray, models, tmp_path, monkeypatch):
    listed = [None, *texts(120)]
    file = write_parquet(tmp_path / "texts.parquet", text=listed)
    sparing.predict(models["class"], file, output_dir=tmp_path / "one", processes=1, **SETTINGS)
    how = {"engine": "ray", "address": "local", **SETTINGS}
    result = sparing.predict(models["class"], file, output_dir=tmp_path / "ray", **how)
    assert (result.rows, result.errors) == (121, 1)
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")
    for name in ("part-00001.parquet", "part-00002.parquet"):
        (tmp_path / "ray" / name).unlink()
    # a killed actor is replaced, and its shard is answered again
    monkeypatch.setenv(jobs.TALLY, str(tmp_path / "tally"))
    monkeypatch.setattr(study, "answer", jobs.killed_once)
    result = sparing.predict(models["class"], file, output_dir=tmp_path / "ray", **how)
    assert result.answered == 32
    assert (tmp_path / "tally").exists()
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")
def test_errors_of_a_cluster_are_one_line(ray, models, tmp_path):
    file = write_parquet(tmp_path / "texts.parquet", text=texts(20))
    how = {"engine": "ray", "output_dir": tmp_path / "out"}
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(UsageError, match=r"^threshold is for models that give several labels"):
        sparing.predict(models["number"], file, address="local", threshold=0.4, **how)
    assert signal.getsignal(signal.SIGTERM) is before
