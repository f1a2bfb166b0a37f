"""The page in a browser: light and dark, wide and narrow, nothing overflows, nothing is fetched."""

from __future__ import annotations

import contextlib
import html
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from sparing.report.page import write_report
from tests.compare import records as make
from tests.compare.test_figures import TWELVE
from tests.compare.test_page import HOSTILE

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
PROBE = """<!doctype html><link rel="icon" href="data:,"><body>
<iframe style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<script>
addEventListener("load", () => {{
  const view = document.querySelector("iframe").contentWindow, inner = view.document;
  const over = [...inner.querySelectorAll("body *")].filter(element => {{
    const box = element.getBoundingClientRect();
    return box.width && (box.right > {width} + 0.5 || box.left < -0.5);
  }});
  const small = [...inner.querySelectorAll("svg text")].filter(
    text => text.getBoundingClientRect().height && text.getBoundingClientRect().height < 9);
  const found = {{
    scroll: inner.documentElement.scrollWidth,
    over: over.map(element => element.tagName + ": " + element.textContent.slice(0, 60)),
    small: small.length,
    ground: view.getComputedStyle(inner.body).backgroundColor,
    ink: view.getComputedStyle(inner.body).color,
    line: view.getComputedStyle(inner.querySelector("svg text") || inner.body).fill,
    contents: [...inner.querySelectorAll("nav.contents")].filter(
      list => list.getBoundingClientRect().width > 0).length,
    drawings: [...inner.querySelectorAll("figure svg")].filter(
      svg => svg.getBoundingClientRect().width > 0).length,
    resources: view.performance.getEntriesByType("resource").map(entry => entry.name),
    scripts: inner.scripts.length,
    title: inner.title,
  }};
  document.body.innerHTML = "<pre id=found></pre>";
  document.querySelector("#found").textContent = JSON.stringify(found);
}});
</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs the browser of Debian's package chromium"),
]


@contextlib.contextmanager
def served(content):
    """One page on this machine under every host name; gives its port and what was asked for."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.startswith("/time/"):  # the browser's own clock
                requests.append(self.path)
            self.send_response(200 if self.path == "/probe" else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            if self.path == "/probe":
                self.wfile.write(content.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def look(page, profile, width, dark=False):
    """What a browser makes of a page: measurements of its boxes, and all that it asked for.

    The page's own ban on fetching is taken out first: nothing may even try.
    """
    bare, bans = POLICY.subn("", page)
    assert bans <= 1
    content = PROBE.format(width=width, page=html.escape(bare))
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    with served(content) as (port, requests):
        command = [
            *(CHROMIUM, *FLAGS, *scheme, f"--user-data-dir={profile}", "--window-size=1600,1000"),
            f"--host-resolver-rules=MAP * 127.0.0.1:{port}",
            *("--dump-dom", "http://probe.test/probe"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stdout[:500] + done.stderr[-500:]
    return json.loads(html.unescape(match[1])), requests


def pages():
    three = ("softmax", "linear", "kerformer")
    yield "full", make.config(), make.records() + make.CLAIMS, make.GOALS
    yield "hostile", make.config(HOSTILE, 2), make.records(HOSTILE, 2), []
    yield "thirty", make.thirty(), make.records(make.THIRTY, 3), 10 * make.GOALS
    yield "twelve", make.config(TWELVE, 2), make.records(TWELVE, 2), []
    yield "partial", make.config(three, 2), make.records(three, 2)[:120], []


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    written_pages = {}
    for name, config, records, goals in pages():
        failed = [{"cell": f"train/linear/seed={'9' * 80}", "error": "x" * 300}]
        folder = tmp_path_factory.mktemp(name)
        make.write_run(folder, config, records, goals, failed)
        written_pages[name] = write_report(folder)["html"].read_text()
    return written_pages


@pytest.mark.parametrize("width", [320, 390, 760, 1123, 1124, 1280])
@pytest.mark.parametrize("name", ["full", "hostile", "thirty", "twelve", "partial"])
def test_nothing_overflows_and_nothing_is_fetched(written, tmp_path, name, width):
    layout, requests = look(written[name], tmp_path / "profile", width)
    assert layout["over"] == []
    assert layout["scroll"] <= width
    assert layout["small"] == 0
    assert layout["contents"] == 1  # one of two forms, by width
    assert layout["drawings"] >= 1
    assert layout["resources"] == []
    assert layout["scripts"] == 0
    assert requests == ["/probe"]


@pytest.mark.parametrize("width", [390, 1280])
def test_light_and_dark(written, tmp_path, width):
    light, _ = look(written["full"], tmp_path / "light", width)
    dark, _ = look(written["full"], tmp_path / "dark", width, dark=True)
    assert (light["ground"], light["ink"]) == ("rgb(252, 252, 251)", "rgb(22, 24, 29)")
    assert (dark["ground"], dark["ink"]) == ("rgb(20, 22, 26)", "rgb(236, 238, 242)")
    assert light["line"] != dark["line"]
    assert dark["scroll"] <= width


def test_the_look_sees_what_it_should_see(tmp_path):
    bad = (
        "<!doctype html><title>bad</title><body style='margin:0'><p style='width:700px'>wide</p>"
        "<svg width=100 height=20><text y=9 style='font-size:4px'>small</text></svg>"
        "<img src='http://example.com/x.png'><script>1</script>"
    )
    layout, requests = look(bad, tmp_path / "profile", 390)
    assert layout["over"]
    assert layout["scroll"] > 390
    assert layout["small"] == 1
    assert layout["scripts"] == 1
    assert layout["resources"] == ["http://example.com/x.png"]
    assert "/x.png" in requests
