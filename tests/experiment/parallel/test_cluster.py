"""Cells on a real Ray cluster of two nodes, started here on loopback, with faults."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparing.compare import STUDY as COMPARE
from sparing.compare import study as compare
from sparing.core.errors import DataError, UsageError
from sparing.engines.cluster import Cluster
from sparing.engines.workers import WorkerLost
from sparing.experiment.parallel.engines import Where
from sparing.experiment.parallel.running import DRIVER
from sparing.experiment.parallel.status import status_of
from sparing.experiment.run import Run, read_config
from sparing.measure.machine import facts_of_node
from tests.experiment.parallel import tiny
from tests.experiment.parallel.apart import apart, fill, mount, unmount
from tests.experiment.parallel.test_side_by_side import run, scores

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # clusters stay on loopback
pytestmark = pytest.mark.slow

SECONDS = 240.0


@contextmanager
def cluster_of(*environments: dict[str, str]) -> Iterator[Any]:
    """A Ray cluster of this machine: a node of two processors with each of these variables."""
    import ray
    import ray.cluster_utils

    cluster: Any = ray.cluster_utils.Cluster(shutdown_at_exit=False)
    try:
        for more in environments:
            add_node(cluster, more)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def add_node(cluster: Any, variables: dict[str, str] | None = None) -> None:
    """Add a node of two processors that imports what this process does."""
    imports = os.pathsep.join(entry for entry in sys.path if entry)
    usual = {"PYTHONPATH": imports, "RAY_USAGE_STATS_ENABLED": "0"}
    cluster.add_node(
        num_cpus=2,
        node_ip_address="127.0.0.1",
        include_dashboard=False,
        env_vars={**usual, **(variables or {})},
        object_store_memory=80 * 2**20,
    )


def on(cluster: Any, processes: int = 0) -> Where:
    return Where("ray", processes, str(cluster.address))


PROGRAM = """
import json, sys
from pathlib import Path
from sparing.experiment.parallel.engines import Where
from sparing.measure.machine import facts_of_node
from tests.experiment.parallel import tiny
if __name__ == "__main__":
    folder, where, options = json.loads(sys.argv[1])
    result = tiny.STUDY.run(tiny.Options(**options), Path(folder), where=Where(*where))
    print(len(result.failures))
"""


@contextmanager
def driver(folder: Path, where: Where, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Another process that does the run."""
    import json

    imports = os.pathsep.join(entry for entry in sys.path if entry)
    given = json.dumps([str(folder), [where.engine, where.processes, where.address], options])
    program = folder.with_name(f"{folder.name}-program.py")
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, "-P", str(program), given],
        env={**os.environ, "PYTHONPATH": imports},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def whole(folder: Path, squares: int = 4) -> None:
    """Every cell is there, once."""
    by_cell = scores(folder)
    assert len(by_cell) == squares + 3
    assert {len(values) for values in by_cell.values()} == {1}


def test_records_and_failures_are_those_of_this_process(tmp_path: Path) -> None:
    with cluster_of({}, {}) as cluster:
        result = run(tmp_path / "ray", on(cluster), faults={"beside/square/1": "raise"})
        assert [vars(failure) for failure in result.failures] == [
            {"cell": "beside/square/1", "error": "it cannot be done"}
        ]
        # alone is alone on its node, and not in this process
        spans = tiny.spans(tmp_path / "ray")
        assert os.getpid() not in {pid for *_, pid in spans.values()}
        assert spans["alone-last"][0] >= max(e for n, (_, e, _) in spans.items() if "square" in n)
        assert not run(tmp_path / "ray", on(cluster)).failures
    run(tmp_path / "here", None)
    assert scores(tmp_path / "ray") == scores(tmp_path / "here")
    whole(tmp_path / "ray")


def test_a_worker_is_killed_in_the_middle_of_a_cell(tmp_path: Path) -> None:
    with cluster_of({}, {}) as cluster:
        faults = {"beside/square/1": "die once", "beside/square/2": "die"}
        result = run(tmp_path, on(cluster), faults=faults)
        assert [failure.cell for failure in result.failures] == ["beside/square/2"]
        assert "killed 3 times" in result.failures[0].error
        assert not run(tmp_path, on(cluster)).failures
    whole(tmp_path)


def test_what_a_node_always_kills_for_its_memory_is_said_once(tmp_path: Path) -> None:
    # all nodes use more than that, so that every task is killed within a moment
    short = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "250"}
    with cluster_of(short) as cluster:
        with Cluster(lambda: ("host", "processor", "version"), str(cluster.address)) as engine:
            for submit in (engine.submit, engine.submit_alone):
                with pytest.raises(WorkerLost, match="killed 3 times: is memory short"):
                    submit(_wait, 60.0).result(timeout=SECONDS)
        with pytest.raises(WorkerLost, match="killed 3 times"):
            run(tmp_path, on(cluster))
    assert _scores(tmp_path) == {}


def _wait(seconds: float) -> None:
    time.sleep(seconds)


def test_the_disk_of_one_node_is_full(tmp_path: Path) -> None:
    folder, faults = tmp_path / "run", {f"beside/square/{number}": "write" for number in range(4)}
    run(folder, None, "alone/first", seconds=1.0)
    with cluster_of({}) as cluster, apart("small-disk") as there:
        there(mount, folder / "models", "64k")
        there(add_node, cluster)
        with pytest.raises(DataError, match=r"No space left on device.* \(on small-disk\)"):
            run(folder, on(cluster), faults=faults, seconds=1.0)
        before = scores(folder)
        assert {"alone/first", "beside/root"} <= before.keys()
        assert len(before) < 6
        there(unmount, folder / "models")
        assert not run(folder, on(cluster), faults=faults, seconds=1.0).failures
    whole(folder)
    assert before.items() <= scores(folder).items()


def test_the_disk_of_the_driver_is_full(tmp_path: Path) -> None:
    with apart("driver") as there:
        there(mount, tmp_path, "1m")
        there(_on_a_full_disk, tmp_path)


def _on_a_full_disk(disk: Path) -> None:
    folder = disk / "run"
    with cluster_of({}, {}) as cluster:
        with driver(folder, on(cluster), squares=12, seconds=0.5) as process:
            until(lambda: len(_scores(folder)) >= 3)
            filler = fill(disk)
            _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 1
        assert err.strip().endswith("No space left on device"), err[-2000:]
        before = _scores(folder)
        assert 3 <= len(before) < 15
        filler.unlink()
        assert not run(folder, on(cluster), squares=12, seconds=0.5).failures
    whole(folder, 12)
    assert before.items() <= scores(folder).items()


def test_a_node_is_removed(tmp_path: Path) -> None:
    with (
        cluster_of({}, {}) as cluster,
        driver(tmp_path / "run", on(cluster), squares=12, seconds=1.0) as process,
    ):
        until(lambda: len(_scores(tmp_path / "run")) >= 4)
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        out, err = process.communicate(timeout=SECONDS)
        assert out.strip() == "0", err[-2000:]
    whole(tmp_path / "run", 12)


def test_the_driver_is_killed_and_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with cluster_of({}, {}) as cluster:
        with driver(folder, on(cluster), squares=8, seconds=0.5) as process:
            until(lambda: len(_scores(folder)) >= 3)
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = _scores(folder)
        assert 3 <= len(before) < 11
        assert not run(folder, on(cluster), squares=8, seconds=0.5).failures
    whole(folder, 8)
    assert before.items() <= scores(folder).items()


def test_two_drivers_on_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with (
        cluster_of({}, {}) as cluster,
        driver(folder, on(cluster), squares=6, seconds=0.5) as process,
    ):
        until(lambda: _driver_of(folder))
        with pytest.raises(UsageError, match="in use by another run"):
            run(folder, on(cluster), squares=6, seconds=0.5)
        out, err = process.communicate(timeout=SECONDS)
        assert out.strip() == "0", err[-2000:]
    whole(folder, 6)


def test_sigterm_ends_the_driver_and_its_cells(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with cluster_of({}, {}) as cluster:
        with driver(folder, on(cluster), squares=6, seconds=2.0) as process:
            until(lambda: "beside/root" in _scores(folder))
            process.terminate()
            process.wait(timeout=SECONDS)
        running = [note.pid for note in status_of(folder).running]
        until(lambda: not any(map(psutil.pid_exists, running)))
        assert not run(folder, on(cluster), squares=6, seconds=2.0).failures
    whole(folder, 6)


def test_a_node_with_another_version_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other" / "sparing"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '9.9'\n")
    path = os.pathsep.join([str(other.parent), *(entry for entry in sys.path if entry)])
    with (
        cluster_of({}, {"PYTHONPATH": path}) as cluster,
        pytest.raises(UsageError, match=r"has no sparing like this one, .* has sparing 0\."),
    ):
        run(tmp_path / "run", on(cluster))
    assert _scores(tmp_path / "run") == {}


def test_no_cluster_and_no_such_address(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no Ray cluster at '127.0.0.1:1'.*ray start"):
        run(tmp_path, Where("ray", 0, "127.0.0.1:1"))


def _scores(folder: Path) -> dict[str, list[float]]:
    return scores(folder) if (folder / "config.json").exists() else {}


def _driver_of(folder: Path) -> Any:
    exists = (folder / "config.json").exists()
    return exists and status_of(folder).driver is not None and DRIVER


def test_twenty_random_kills(tmp_path: Path) -> None:
    """Of workers, drivers and nodes: every record is there once, as in one process."""
    folder, squares, chance = tmp_path / "run", 60, random.Random(7)
    kills = Counter[str]()
    with cluster_of({}, {}) as cluster:
        while sum(kills.values()) < 20:
            with driver(folder, on(cluster), squares=squares, seconds=0.7) as process:
                until(lambda: _driver_of(folder) or process.poll() is not None)
                while process.poll() is None and sum(kills.values()) < 20:
                    time.sleep(chance.uniform(0.5, 3.0))
                    kind = chance.choice(["worker"] * 4 + ["driver"] * 2 + ["node"])
                    kills[kind] += _kill(kind, folder, process, cluster)
                if sum(kills.values()) >= 20:
                    process.wait(timeout=SECONDS)
            done = _scores(folder)
            assert {len(values) for values in done.values()} <= {1}
        assert not run(folder, on(cluster), squares=squares, seconds=0.7).failures
    whole(folder, squares)
    run(tmp_path / "here", None, squares=squares)
    assert scores(folder) == scores(tmp_path / "here")
    print(dict(kills))


def _kill(kind: str, folder: Path, process: subprocess.Popen[str], cluster: Any) -> bool:
    """Kill one of a kind with -9; whether there was one."""
    if kind == "driver":
        process.kill()
        process.wait()
        return True
    if kind == "node":
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        add_node(cluster)
        return True
    pids = [note.pid for note in status_of(folder).running]
    if pids:
        os.kill(random.choice(pids), signal.SIGKILL)
    return bool(pids)


def test_a_node_that_goes_while_it_is_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_of({}) as started, Cluster(facts_of_node(), on(started).address) as cluster:
        here, gone = cluster._alive(), {"1" * 56: 1}
        monkeypatch.setattr(cluster, "_alive", lambda: {**gone, **here})
        assert [node.id for node in cluster.nodes()] == list(here)
        monkeypatch.setattr(cluster, "_alive", lambda: dict(gone))
        with pytest.raises(WorkerLost, match="no node of the cluster is alive"):
            cluster.nodes()


def test_a_comparison_gives_the_same_accuracies(tmp_path: Path) -> None:
    options = compare.Options(mechanisms=("softmax", "linformer"), seeds=(0, 1))
    assert options.recipe is not None
    options = dataclasses.replace(options, recipe=dataclasses.replace(options.recipe, epochs=1))
    with cluster_of({}, {}) as cluster:
        engines = {"here": None, "two": Where(processes=2), "ray": on(cluster)}
        for name, where in engines.items():
            COMPARE.run(options, tmp_path / name, where=where, cells="train/*")
    values = {name: _accuracies(tmp_path / name) for name in engines}
    assert len(values["here"]) == 4
    assert values["here"] == values["two"] == values["ray"]


def _accuracies(folder: Path) -> dict[str, Any]:
    records = Run(folder, read_config(folder)).records()
    return {r.cell: (r.value, r.labels) for r in records if r.name == "accuracy"}
