"""The forms of both models in every engine, their exits, and cascades, against steps by hand."""

from __future__ import annotations

from dataclasses import replace

import jaxtyping
import pytest
import torch
from transformers import BertForSequenceClassification, BertTokenizerFast

from sparing.core.errors import UsageError
from sparing.export import segment
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import open_chain
from sparing.export.forms import Form
from sparing.slim import engines as slim_engines
from sparing.slim.engines import BothForms, Engines
from sparing.slim.evidence.candidates import SOME, Candidate, answers_at, stages, taken
from sparing.slim.options import Options
from sparing.slim.study import steps_of, task_of
from sparing.tasks import Examples, load_task
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.folding.fold import fold_if_possible
from sparing.transfer.freezing import TextSegment, segments
from sparing.transfer.opening import open_model
from tests.agree.kinds import save
from tests.slim.conftest import only, texts_of
from tests.transfer.classifiers import dense as random_model
from tests.transfer.classifiers import texts as random_texts

ENGINES = ("eager", "onnxruntime", "openvino")


@pytest.fixture(scope="module")
def rows(toy):
    """Texts of many lengths, as token numbers."""
    tokenizer = BertTokenizerFast.from_pretrained(toy)
    return [torch.tensor(tokenizer(text)["input_ids"]) for text in texts_of(24, seed=5)]


@pytest.fixture(scope="module")
def task(toy, rows):
    """A task of these texts."""
    examples = Examples("input_ids", rows, torch.zeros(len(rows), dtype=torch.long))
    given = load_task("listops", examples=20)
    return replace(given, train=examples, validation=examples, test=examples, tokens=24)


@pytest.fixture(scope="module")
def models(toy):
    """The dense model, and a narrow one with an exit that is unsure of some texts."""
    dense = BertForSequenceClassification.from_pretrained(toy).eval()
    ours = adapt(BertForSequenceClassification.from_pretrained(toy), exits=(1, 2)).eval()
    with torch.no_grad():
        for head in ours.encoder.heads.values():
            head.classifier.weight.mul_(0.3)
    sizes = ours.plan
    return dense, ours, replace(sizes.shortened(2), exits=(1,), threshold=0.5)


@pytest.fixture(scope="module")
def both(models, task, tmp_path_factory):
    """Both models in every engine."""
    dense, ours, plan = models
    with pytest.MonkeyPatch.context() as patch:
        jaxtyping.config.update("jaxtyping_disable", True)
        patch.setattr(slim_engines, "MOST_INPUTS", 6)
        built = Engines(task, tmp_path_factory.mktemp("engines"), 1)
        whole, cuts = built.ours(ours, plan, "slim"), built.cuts(ours, plan, (1, 2))
        return BothForms(built.dense(dense), whole, 1, 24, cuts)


@pytest.fixture(scope="module")
def threshold(both, task):
    """A threshold at which texts exit everywhere, far from the confidence of any of them."""
    chain = both.chain(Candidate("slim", "eager", "float32", threshold=SOME), cascade=True)
    stored = torch.cat([chain.every_exit(batch_of(task, [n])) for n in range(24)])
    known = stored[:, :2].softmax(-1).amax(-1).flatten().sort().values
    gaps = sorted(zip(known.diff().tolist(), known.tolist(), strict=False), reverse=True)
    for gap, start in gaps:
        _, numbers = answers_at(stored, start + gap / 2, cascade=True)
        if set(numbers.tolist()) == {0, 1, 2}:
            return start + gap / 2
    raise AssertionError("these tests need texts that exit everywhere")


def middles(confidences):
    """The middles of the two widest gaps in the middle half of confidences."""
    quarter = len(confidences) // 4
    ordered = confidences.sort().values[quarter:-quarter]
    low, high = ordered[:-1], ordered[1:]
    widest = (high - low).topk(2).indices
    return ((low + high) / 2)[widest].tolist()


def batch_of(task, indices):
    batch = task.collate([task.test[index] for index in indices])
    batch.pop("labels")
    return batch


@torch.no_grad()
def by_hand(parts, batch, threshold):
    """Each text alone and without pads: modules one after another, the dense model last."""
    answers, numbers = [], []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
        inputs = {"input_ids": ids[mask.bool()][None], "attention_mask": mask[mask.bool()][None]}
        hidden = None
        for number, part in enumerate(parts):
            whole = number == 0 or part is parts[-1]
            given = (
                inputs if whole else {"hidden": hidden, "attention_mask": inputs["attention_mask"]}
            )
            out = part(**given)
            hidden, logits = (None, out) if isinstance(out, torch.Tensor) else out[:2]
            if number == len(parts) - 1 or float(logits.softmax(-1).max()) > threshold:
                break
        answers.append(logits[0].detach())
        numbers.append(number)
    return torch.stack(answers), torch.tensor(numbers)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cascade_is_slim_and_then_dense(both, models, task, threshold, engine):
    dense, ours, plan = models
    ours.plan = plan
    parts = [*segments(ours), dense_segment(dense).eval()]
    chain = both.chain(Candidate("slim", engine, "float32", threshold=SOME), cascade=True)
    chain.threshold = threshold
    for indices in ([3], range(6), range(24)):
        batch = batch_of(task, indices)
        expected, ends = by_hand(parts, batch, threshold)
        logits, numbers = chain(batch)
        assert torch.equal(numbers, ends)
        torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
    assert set(ends.tolist()) == {0, 1, 2}


def test_forms_that_are_open_at_once_open_each_file_once(both, task, threshold, monkeypatch):
    for key in both.keys:  # writing them opens some
        both.parts(replace(key, cascade=key.cascades))
        both.parts(replace(key, threshold=SOME))
    files = []

    def counted(opening):
        def opened(path, threads, *rest):
            files.append((path, *rest))
            return opening(path, threads, *rest)

        return opened

    for name in ("open_session", "open_compiled"):
        monkeypatch.setattr(segment, name, counted(getattr(segment, name)))
    candidates = [
        replace(key, threshold=above, cascade=cascade)
        for key in both.keys
        for cascade in {False, key.cascades}
        for above in (threshold, 1.0)
    ]
    runs = both.runs(candidates)
    assert len(files) == len(set(files)) > 4
    monkeypatch.undo()
    batch = batch_of(task, range(8))
    for one in candidates:
        assert torch.equal(runs[str(one)](batch), both.run(one)(batch)), one


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("size", [1, 7])
def test_stored_answers_tell_what_a_chain_decides(both, task, threshold, engine, cascade, size):
    """Certified are decisions on stored answers; served is the chain: both must be the same."""
    key = Candidate("slim", engine, "float32", threshold=SOME)
    full = both.chain(key, cascade=True)
    stored = torch.cat([full.every_exit(batch_of(task, [n])) for n in range(24)])
    chain = both.chain(key, cascade=cascade)
    for above in (0.0, threshold, 1.0):
        answers, numbers = answers_at(stored, above, cascade=cascade)
        run = both.run(replace(key, threshold=above, cascade=cascade), chain)
        for start in range(0, 24, size):
            indices = list(range(start, min(start + size, 24)))
            batch = batch_of(task, indices)
            torch.testing.assert_close(run(batch), answers[indices], rtol=1e-3, atol=1e-3)
            assert torch.equal(chain(batch)[1], numbers[indices])


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_stored_answers_tell_what_goes_by_way_of_the_dense_model_in_int8(both, task, engine):
    """The answers of three forms tell where each text is answered, and what."""
    key = next(k for k in both.keys if (k.model, k.engine, k.precision) == ("slim", engine, "int8"))
    key = replace(key, threshold=SOME)
    stored = {
        k: torch.cat(
            [both.chain(k, cascade=True).every_exit(batch_of(task, [n])) for n in range(24)]
        )
        for k in (key, key.between)
    }
    full = stages(replace(key, second=0.5), stored).softmax(-1).amax(-1)
    seen = set()
    for above in middles(full[:, :2].amax(1)):
        going_on = full[full[:, :2].amax(1) <= above, 2].sort().values
        widest = int(going_on.diff().argmax())
        second = float(going_on[widest : widest + 2].mean())
        one = replace(key, threshold=above, cascade=True, second=second)
        run = both.run(one)
        answers, numbers = taken(one, stages(one, stored))
        for row in range(24):
            made = run(batch_of(task, [row]))
            torch.testing.assert_close(made, answers[[row]], rtol=1e-3, atol=1e-3)
        seen |= set(numbers.tolist())
    assert {2, 3} <= seen


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize(("precision", "second"), [("float32", 1.0), ("int8", 1.0), ("int8", 0.7)])
def test_a_saved_cascade_answers_the_same(
    both, task, threshold, tmp_path, engine, precision, second
):
    key = next(
        k for k in both.keys if (k.model, k.engine) == ("slim", engine) and k.precision == precision
    )
    one = replace(key, threshold=threshold, cascade=True, second=second)
    run = both.run(one)
    paths = both.write(one, tmp_path / "serve")
    joined = engine == "onnxruntime"
    folder = tmp_path / "serve" / "onnx" if joined else tmp_path / "serve"
    parts = 3 if second == 1 else 4
    assert [path.parent for path in paths] == [folder] * (1 if joined else parts)
    opened = open_chain(tmp_path / "serve")
    assert (opened.threshold, opened.second) == (threshold, second)
    assert (opened.precision, len(opened)) == (precision, len(paths))
    for index in range(8):
        batch = batch_of(task, [index])
        assert torch.equal(opened(batch)[0], run(batch))


def test_a_cut_answers_as_the_exit_after_its_layers(both, task):
    batches = [batch_of(task, [index]) for index in range(8)]
    for key in (key for key in both.keys if key.model == "slim"):
        chain = both.chain(replace(key, threshold=SOME))
        by_exit = torch.cat([chain.every_exit(batch) for batch in batches])
        # bfloat16 rounds elsewhere, and static scales are those of the segment
        near = 1e-4 if "float32" in key.precision or key.engine == "onnxruntime" else 0.05
        for at, layers in enumerate((1, 2)):
            cut = replace(key, layers=layers)
            assert len(both.parts(cut)) == 1
            made = torch.cat([both.run(cut)(batch) for batch in batches])
            torch.testing.assert_close(made, by_exit[:, at], rtol=near, atol=near)


def test_only_forms_with_exits_run_in_several_segments(both, task):
    batch = batch_of(task, range(5))
    for key in (key for key in both.keys if key.model == "slim"):
        assert len(both.parts(key)) == len(both.parts(replace(key, layers=1))) == 1
        with_exits = replace(key, threshold=SOME)
        assert len(both.parts(with_exits)) == len(both.chain(with_exits)) == 2
        exiting, plain = both.without_leaving(with_exits)(batch), both.run(key)(batch)
        torch.testing.assert_close(exiting, plain, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_saved_cut_answers_the_same(both, task, tmp_path, engine):
    key = next(k for k in both.keys if (k.model, k.engine, k.precision) == ("slim", engine, "int8"))
    first = both.chain(replace(key, layers=1))
    batches = [batch_of(task, [index]) for index in range(24)]
    sure = torch.cat([first.every_exit(batch) for batch in batches])[:, 0].softmax(-1).amax(-1)
    one = replace(key, layers=1, threshold=middles(sure)[0], cascade=True, second=0.7)
    run, _ = both.run(one), both.write(one, tmp_path)
    opened, ends = open_chain(tmp_path), set()
    for batch in batches:
        logits, numbers = opened(batch)
        assert torch.equal(logits, run(batch))
        ends |= set(numbers.tolist())
    assert 0 in ends
    assert len(ends) > 1


def test_what_one_file_cannot_hold_does_not_fit(both, monkeypatch):
    names = [(key.model, key.engine, key.precision) for key in both.keys]
    key = both.keys[names.index(("slim", "onnxruntime", "int8"))]
    forms = [replace(key, cascade=True, second=above) for above in (1.0, 0.7)]
    sizes = [sum(part.stat().st_size for part in both.parts(one)) for one in forms]
    monkeypatch.setattr(slim_engines, "MOST_BYTES", sizes[0])
    assert [both.fits(one) for one in forms] == [True, False]
    assert all(both.fits(replace(one, engine="openvino", settings="NNCF")) for one in forms)
    monkeypatch.setattr(slim_engines, "MOST_BYTES", 1)
    assert both.fits(Candidate("dense", "onnxruntime", "float32"))  # a file alone is not joined


def test_a_form_in_pytorch_has_no_files(both, tmp_path):
    assert both.write(Candidate("slim", "eager", "float32"), tmp_path / "serve") == []
    assert not (tmp_path / "serve").exists()


def test_the_dense_model_behind_int8_is_exact(both):
    for key in both.keys:
        if not key.cascades:
            continue
        last = both.parts(replace(key, cascade=True))[-1]
        precision = "float32" if key.precision == "int8" else key.precision
        dense = both.parts(Candidate("dense", key.engine, precision))[0]
        assert last is dense or last == dense or key.engine == "eager"


def test_the_dense_forms_come_first_and_every_engine_is_there(both):
    keys = both.keys
    half = [key for key in keys if key.model == "dense"]
    assert keys[: len(half)] == half
    assert [replace(key, model="slim") for key in half] == keys[len(half) :]
    assert {(key.engine, key.precision) for key in half} >= {
        *(("eager", "float32"), ("onnxruntime", "float32"), ("onnxruntime", "int8")),
        *(("openvino", "float32"), ("openvino", "int8")),
    }


def test_token_types_reach_the_dense_model_behind_an_exit():
    """The remaining texts are cut to the longest of them, token types and all."""
    dense = random_model("bert", dtype=torch.float32)
    ours = adapt(random_model("bert", dtype=torch.float32, seed=3), exits=(2,)).eval()
    ours.plan = replace(ours.plan.shortened(2), exits=(), threshold=1.0)
    given = random_texts([3, 9, 5, 12, 7], longest=16, types=True)
    parts = [*segments(ours), dense_segment(dense).eval()]
    seen = []
    hook = parts[-1].register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs), with_kwargs=True
    )
    with torch.no_grad():
        first = parts[0](**given)[1]
    sure = first.softmax(-1).amax(-1)
    threshold = float(sure.sort().values[2:4].mean())
    seen.clear()
    logits, numbers = Chain(parts, threshold)(given)
    hook.remove()
    stay = sure <= threshold
    assert 0 < int(stay.sum()) < 5
    assert torch.equal(numbers.bool(), stay)
    (call,) = seen
    longest = int(given["attention_mask"][stay].sum(1).max())
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(call[name], given[name][stay][:, :longest]), name
    alone = {name: value[stay] for name, value in given.items()}
    torch.testing.assert_close(logits[stay], dense(**alone).logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[~stay], first[~stay])


@pytest.mark.parametrize(
    ("engines", "words"),
    [((), "not any more"), (("onnxruntime", "openvino"), "only now")],
)
def test_other_engines_than_at_the_first_start_are_one_line(
    models, task, tmp_path, monkeypatch, engines, words
):
    dense, ours, plan = models

    def built(*names):
        monkeypatch.setattr("sparing.export.forms.missing_packages", only(*names))
        engine = Engines(task, tmp_path, 1)
        return BothForms(engine.dense(dense), engine.ours(ours, plan, "slim"), 1, 24)

    keys = built("onnxruntime").keys
    built("onnxruntime").require(keys)
    with pytest.raises(UsageError, match=f"can be built {words}.*begin it anew") as seen:
        built(*engines).require(keys)
    assert "\n" not in str(seen.value)


def test_only_exported_files_are_dropped(task, tmp_path):
    folder, elsewhere = tmp_path / "engines", tmp_path / "elsewhere"
    for directory in (folder / "dense", folder / "slim", elsewhere):
        directory.mkdir(parents=True)
        (directory / "segment-0.onnx").touch()
    (folder / "slim" / "mine.txt").touch()
    (folder / "link").symlink_to(elsewhere)
    Engines(task, folder, 1).drop()
    left = {path.relative_to(folder).as_posix() for path in folder.iterdir()}
    assert left == {"slim", "link"}
    assert [path.name for path in (folder / "slim").iterdir()] == ["mine.txt"]
    assert (elsewhere / "segment-0.onnx").exists()


def test_calibration_inputs_are_spread_over_those_that_are_trained_on(task, tmp_path, monkeypatch):
    monkeypatch.setattr(slim_engines, "MOST_INPUTS", 4)
    inputs = Engines(task, tmp_path, 1).calibration()
    assert len(inputs) == 4
    for given, index in zip(inputs, (0, 6, 12, 18), strict=True):
        assert torch.equal(given["input_ids"][0], task.train.inputs[index])
        assert set(given) <= {"input_ids", "attention_mask", "token_type_ids"}


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_segment_that_takes_hidden_states_needs_one_that_gives_them(both, engine):
    """After the dense model, which gives logits alone, only the model's inputs can be taken."""
    dense = both.parts(Candidate("dense", engine, "float32"))
    slim = both.parts(Candidate("slim", engine, "float32", threshold=0.5))
    assert len(Chain([*dense, *dense])) == 2
    with pytest.raises(UsageError, match="only the last segment of a chain may give logits alone"):
        Chain([*dense, *slim[1:]])


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_behind_int8_the_dense_model_computes_in_float32(both, task, engine):
    """Also where everything else of an INT8 form would be in bfloat16: that is certified."""
    batch = batch_of(task, [5])
    exact = both.chain(Candidate("dense", engine, "float32"))(batch)[0]
    for model in ("dense", "slim"):
        key = Candidate(model, engine, "int8")
        key = next(k for k in both.keys if replace(k, settings="") == key)
        logits = both.run(replace(key, cascade=True))(batch)
        torch.testing.assert_close(logits, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["class", "labels", "number", "entities", "span"])
def test_the_dense_model_answers_the_same_without_pads(kind, tmp_path):
    if kind == "class":
        model = random_model("bert", dtype=torch.float32)
    else:
        model = open_model(str(save(tmp_path / kind, kind))).eval()
    (ours,) = slim_engines.without_pads(model)
    given = random_texts([9, 3, 7, 2], longest=9)
    plain, packed = (Chain([one])(given)[0] for one in (dense_segment(model).eval(), ours))
    if kind in ("entities", "span"):  # pads have no answer
        keep = given["attention_mask"].bool()
        plain, packed = plain[keep], packed[keep]
    torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-5)


def test_pytorch_serves_the_dense_model_without_pads(both):
    (part,) = both.dense.parts(Form("eager", "float32"))
    assert isinstance(part, TextSegment)


def test_images_and_folded_models_stay_themselves():
    assert slim_engines.without_pads(random_model("vit")) == []
    folded = random_model("deberta-v2")
    assert len(slim_engines.without_pads(folded)) == 1
    assert fold_if_possible(folded)
    assert slim_engines.without_pads(folded) == []


@pytest.mark.parametrize(("batches", "skips"), [((1, 8), False), ((8, 1), True)])
def test_files_skip_pads_where_batches_decide(batches, skips, texts_options, tmp_path):
    options = replace(texts_options, batches=batches)
    forms = steps_of(options, task_of(options)[0], tmp_path).dense_forms
    (path,) = forms.parts(forms.find("onnxruntime", "float32"))
    assert (b"pads/places" in path.read_bytes()) is skips
    pictures = load_task("digits", patch_size=4)
    assert not steps_of(Options(batches=(8,)), pictures, tmp_path).engines.skips_pads
