"""The calculator's page: what it serves and to whom, what it answers, and what it needs."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import subprocess
import threading
from urllib.parse import quote

import pytest
import torch

from sparing.calculator import Calculator
from sparing.calculator.network import SHIPPED
from sparing.calculator.teaching import EPOCHS, SHOWN, small_network, two_weights
from sparing.calculator.web import PAGE, TRAINED, Said, Voice, answers, serve, voices
from sparing.core.errors import UsageError
from sparing.models.shared.quiet import quiet
from sparing.predictors import build_predictor, load_predictor

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def speaking():
    return voices(Calculator.load(SHIPPED))


@contextlib.contextmanager
def running(speaking):
    with serve(speaking) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def request(port, path, host=None, method="GET", **more):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}", **more})
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read().decode()


def test_everyone_answers_in_range(speaking):
    reply = answers("3 - -2 + 4", speaking)
    assert reply["exact"] == "9"
    assert [answer["name"] for answer in reply["answers"]] == [
        "calculator",
        "FNN2",
        "LSTM with attention",
        "transformer4",
    ]
    assert all(answer["right"] for answer in reply["answers"])
    assert reply["answers"][0]["answer"] == "9"


def test_long_and_large_sums_are_the_calculators_alone(speaking):
    replies = answers(" + ".join(["999"] * 9), speaking)["answers"]
    assert replies[0]["answer"] == "8991"
    room = "has no room for so many numbers"  # a recurrent network reads any length
    assert [answer.get("error") for answer in replies[1:]] == [room, None, room]
    assert not replies[2]["right"]
    for digits in (20, 38, 39, 50, 400):
        large = answers("1" * digits + " + 1", speaking)["answers"]
        assert (large[0]["answer"], large[0]["right"]) == ("1" * (digits - 1) + "2", True)
        assert not any(answer.get("right") for answer in large[1:])
        assert json.dumps(large, allow_nan=False)
        assert all("not finite" not in answer.get("error", "") for answer in large)
    assert "too large to be read as a value" in large[1]["error"]


def test_networks_are_given_the_sum_as_it_was_typed(speaking):
    heard = []
    voice = Voice("hears", 1, "characters", lambda text: heard.append(text) or Said("3", 3))
    assert answers("  1 +\t2 ", [voice])["answers"][0]["right"]
    assert heard == ["  1 +\t2 "]
    script = (PAGE / "page.js").read_text()
    assert "const text = field.value;" in script
    assert '"/api/answers?sum=" + encodeURIComponent(text)' in script
    with running(speaking) as port:
        typed = quote("29+  407-  -18 ")
        reply = json.loads(request(port, f"/api/answers?sum={typed}")[2])["answers"]
    expected = Calculator.load(SHIPPED).answer(["29+  407-  -18 "])[0]
    assert (reply[0]["answer"], reply[0]["confidence"]) == (expected.text, expected.confidence)
    assert "error" not in reply[1]


def test_a_wrong_last_digit_of_a_long_number_is_wrong(speaking):
    said = Said("99999999999999999999", 99999999999999999999)
    voice = Voice("one off", 1, "characters", lambda text: said)
    reply = answers("99999999999999999998", [voice])["answers"][0]
    assert (reply["right"], reply["off"]) == (False, "1")
    near = Voice("near", 1, "values", lambda text: Said("2.50", 2.4951))
    assert answers("2", [near])["answers"][0]["right"]


def test_predictors_that_come_along_have_the_printed_sizes():
    sizes = {
        folder.name: sum(p.numel() for p in load_predictor(folder).parameters() if p.requires_grad)
        for folder in TRAINED.iterdir()
    }
    assert sizes == {"FNN2": 6211, "LSTM-with-attention": 6511, "transformer4": 38209}


def test_files_answers_and_lessons_are_served(speaking):
    with running(speaking) as port:
        for path, kind in (("/", "html"), ("/page.css", "css"), ("/page.js", "javascript")):
            status, headers, text = request(port, path)
            assert (status, kind in headers["Content-Type"]) == (200, True)
            assert text == (PAGE / (path[1:] or "index.html")).read_text()
            assert "default-src 'self'" in headers["Content-Security-Policy"]
        status, _, text = request(port, "/api/answers?sum=" + quote("1 + 1"))
        assert json.loads(text)["exact"] == "2"
        lesson = json.loads(request(port, "/api/two-weights")[2])
        assert set(lesson) == {"texts", "features", "values"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is missing at the end"),
        ("2 / 0", "division is not known"),
        ("1 + x", "'x' is no number"),
        ("(1 + 2", "brackets"),
    ],
)
def test_what_is_no_sum_gets_a_line(speaking, text, message):
    with running(speaking) as port:
        status, _, content = request(port, "/api/answers?sum=" + quote(text))
    assert status == 200
    assert message in json.loads(content)["error"]


def test_nobody_else_is_served(speaking):
    with running(speaking) as port:
        assert request(port, "/", host="evil.example")[0] == 403
        assert request(port, "/", host=f"localhost:{port}")[0] == 200
        assert request(port, "/../web.py")[0] == 404
        assert request(port, "/api/answers?sum=1", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert request(port, "/api/answers?sum=" + "1" * 2000)[0] == 414
        assert request(port, "/api/nothing")[0] == 404
        assert request(port, "/", method="POST")[0] == 501
        with pytest.raises(UsageError, match=f"port {port} is not available"):
            serve(speaking, port)


def test_the_page_needs_nothing_from_elsewhere():
    for file in PAGE.iterdir():
        assert not re.search(r"https?://|@import|url\(", file.read_text()), file.name
    page = (PAGE / "index.html").read_text()
    script = (PAGE / "page.js").read_text()
    # what can be clicked is a button or a field, so that a keyboard reaches it
    clicked = set(re.findall(r'find\("#([\w-]+)"\)\.addEventListener\("click"', script))
    for name in clicked:
        assert re.search(rf'<button [^>]*id="{name}"', page), name
    labelled = set(re.findall(r'<label for="([\w-]+)"', page))
    assert labelled == set(re.findall(r'<(?:input|select) id="([\w-]+)"', page))


def test_the_two_weights_see_what_the_network_sees():
    lesson = two_weights()
    features = torch.tensor(lesson["features"], dtype=torch.float64)
    right = features @ torch.tensor([-1.0, 2.0], dtype=torch.float64)
    assert torch.equal(right, torch.tensor(lesson["values"], dtype=torch.float64))


def test_the_small_network_learns_before_ones_eyes():
    lesson = small_network()
    assert len(lesson["answers"]) == len(lesson["losses"]) == EPOCHS + 1
    assert all(len(guesses) == SHOWN for guesses in lesson["answers"])
    assert lesson["losses"][-1] < 0.2 < lesson["losses"][0]


def test_a_folder_of_predictors_may_be_named(tmp_path):
    with quiet():
        build_predictor("gated_sum").save_pretrained(tmp_path / "two-weights")
    calculator = Calculator.load(SHIPPED)
    assert [voice.name for voice in voices(calculator, tmp_path)] == ["calculator", "two weights"]
    with pytest.raises(UsageError, match="holds no folders of predictors"):
        voices(calculator, tmp_path / "two-weights")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs the browser of Debian's package chromium")
def test_the_page_in_a_browser(speaking):
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000")
    with running(speaking) as port:
        small_network()
        address = f"http://127.0.0.1:{port}/"
        command = [str(CHROMIUM), *flags, "--dump-dom", address]
        page = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert '<output id="exact" for="sum" aria-live="polite">324</output>' in page
    assert page.count('<tr class="right">') == 1
    assert page.count('<tr class="wrong">') == 3
    assert "After 0 epochs" in page
    assert page.count('<button type="button"') == 16 + 4


def test_an_address_that_is_none_is_answered(speaking):
    with running(speaking) as port:
        assert request(port, "http://[/")[0] == 400
