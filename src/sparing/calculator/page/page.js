"use strict";
const find = (name) => document.querySelector(name);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const still = matchMedia("(prefers-reduced-motion: reduce)");

/* The calculator. */
const KEYS = ["7", "8", "9", "⌫", "4", "5", "6", "C", "1", "2", "3", "−", "0", "(−)", "=", "+"];
const field = find("#sum");
let asked = 0;
let waiting = null;

function press(key) {
  const at = [field.selectionStart, field.selectionEnd];
  const put = (text) => field.setRangeText(text, at[0], at[1], "end");
  if (key === "C") field.value = "";
  else if (key === "⌫") field.setRangeText("", at[0] === at[1] ? Math.max(0, at[0] - 1) : at[0], at[1], "end");
  else if (key === "(−)") put("-");
  else if (key === "+") put(" + ");
  else if (key === "−") put(" - ");
  else if (key !== "=") put(key);
  ask();
}

for (const key of KEYS) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = key;
  const names = {"⌫": "delete", "C": "clear", "−": "minus", "(−)": "negative number", "=": "answer", "+": "plus"};
  if (names[key]) button.setAttribute("aria-label", names[key]);
  if (names[key]) button.className = "operator";
  button.addEventListener("click", () => { press(key); if (key === "=") field.focus(); });
  find("#keys").append(button);
}
field.addEventListener("input", ask);
field.addEventListener("keydown", (event) => { if (event.key === "Escape") press("C"); });
find("#calculator").addEventListener("submit", (event) => { event.preventDefault(); ask(); });

function ask() {
  clearTimeout(waiting);
  waiting = setTimeout(answer, 120);
}

async function answer() {
  const mine = ++asked;
  const text = field.value;
  if (!text.trim()) { show({answers: [], exact: ""}); return; }
  let found;
  try {
    const reply = await fetch("/api/answers?sum=" + encodeURIComponent(text));
    found = await reply.json();
  } catch (error) {
    found = {error: "the program behind this page has ended"};
  }
  if (mine === asked) show(found);
}

function show(found) {
  find("#problem").textContent = found.error || "";
  find("#exact").textContent = found.error ? "" : found.exact.replace("-", "−");
  const rows = (found.answers || []).map((each) => {
    const row = document.createElement("tr");
    row.className = each.error ? "" : each.right ? "right" : "wrong";
    const sure = each.confidence === null || each.confidence === undefined ? "" : `sure to ${(100 * each.confidence).toFixed(1)} %`;
    cell(row, each.name, sure);
    cell(row, each.error ? "" : each.answer.replace("-", "−"), each.error || "");
    cell(row, each.error ? "" : each.off, "");
    cell(row, each.weights.toLocaleString("en"), "");
    return row;
  });
  find("#answers tbody").replaceChildren(...rows);
}

function cell(row, text, note) {
  const made = row.insertCell();
  made.textContent = text;
  if (!note) return;
  const small = document.createElement("small");
  small.textContent = note;
  made.append(small);
}

/* Two weights. */
const AREA = {left: -3, right: 2, low: -1, high: 4};
let data = null;
let weights = [0.5, -0.5];
let path = [[0.5, -0.5]];
let seed = 1;
let playing = null;
let looked = [];

function chance() { seed = (seed * 48271) % 2147483647; return seed / 2147483647; }
function rate() { return 10 ** Number(find("#rate").value); }
function says(n) { return weights[0] * data.features[n][0] + weights[1] * data.features[n][1]; }
function meanError() {
  let sum = 0;
  for (let n = 0; n < data.values.length; n++) sum += (says(n) - data.values[n]) ** 2;
  return sum / data.values.length;
}

function stepDown() {
  const count = Number(find("#batch").value), total = data.values.length;
  looked = count >= total ? [...Array(total).keys()] : Array.from({length: count}, () => Math.floor(chance() * total));
  const slope = [0, 0];
  for (const n of looked) {
    const error = says(n) - data.values[n];
    slope[0] += 2 * error * data.features[n][0] / looked.length;
    slope[1] += 2 * error * data.features[n][1] / looked.length;
  }
  weights = weights.map((weight, n) => Math.max(-1e6, Math.min(1e6, weight - rate() * slope[n])));
  path.push([...weights]);
  drawMap();
  tell(slope);
}

function tell(slope) {
  const rows = [["steps", path.length - 1], ["w₀", weights[0].toFixed(3)], ["w₁", weights[1].toFixed(3)],
    ["mean squared error", meanError().toPrecision(3)]];
  if (slope) rows.push(["slope of the error", slope.map((each) => each.toPrecision(3)).join(", ")]);
  const parts = rows.flatMap(([name, value]) => {
    const term = document.createElement("dt"), text = document.createElement("dd");
    term.textContent = name;
    text.textContent = String(value).replaceAll("-", "−");
    return [term, text];
  });
  find("#state").replaceChildren(...parts);
  find("#looked tbody").replaceChildren(...looked.slice(0, 4).map((n) => {
    const row = document.createElement("tr");
    cell(row, data.texts[n].replaceAll("-", "−"), "");
    cell(row, says(n).toFixed(2).replace("-", "−"), "");
    cell(row, String(data.values[n]).replace("-", "−"), "");
    return row;
  }));
}

let square = null;
function moments() {
  const m = {a: 0, b: 0, c: 0, d: 0, e: 0, f: 0}, count = data.values.length;
  data.features.forEach(([x, y], n) => {
    const z = data.values[n];
    m.a += x * x / count; m.b += x * y / count; m.c += y * y / count;
    m.d += x * z / count; m.e += y * z / count; m.f += z * z / count;
  });
  return m;
}

function errorAt(w0, w1) {
  const m = square;
  return m.a * w0 * w0 + 2 * m.b * w0 * w1 + m.c * w1 * w1 - 2 * m.d * w0 - 2 * m.e * w1 + m.f;
}

function drawMap() {
  const canvas = find("#map"), pen = canvas.getContext("2d"), {width, height} = canvas;
  const pad = {left: 40, bottom: 36};
  const x = (w) => pad.left + (w - AREA.left) / (AREA.right - AREA.left) * (width - pad.left);
  const y = (w) => (AREA.high - w) / (AREA.high - AREA.low) * (height - pad.bottom);
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = colour("--blue");
  for (let left = pad.left; left < width; left += 5) {
    for (let top = 0; top < height - pad.bottom; top += 5) {
      const w0 = AREA.left + (left - pad.left) / (width - pad.left) * (AREA.right - AREA.left);
      const w1 = AREA.high - top / (height - pad.bottom) * (AREA.high - AREA.low);
      const depth = Math.log1p(Math.max(0, errorAt(w0, w1))) / Math.log1p(150);
      pen.globalAlpha = Math.min(0.75, Math.floor(depth * 14) / 14 * 0.75);
      pen.fillRect(left, top, 5, 5);
    }
  }
  pen.globalAlpha = 1;
  axis(pen, width, height, pad, x, y);
  pen.strokeStyle = pen.fillStyle = colour("--red");
  pen.lineWidth = 2;
  pen.save();
  pen.beginPath();
  pen.rect(pad.left, 0, width - pad.left, height - pad.bottom);
  pen.clip();
  pen.beginPath();
  path.slice(-400).forEach(([w0, w1], n) => (n ? pen.lineTo(x(w0), y(w1)) : pen.moveTo(x(w0), y(w1))));
  pen.stroke();
  pen.beginPath();
  pen.arc(x(weights[0]), y(weights[1]), 6, 0, 7);
  pen.fill();
  pen.restore();
  pen.strokeStyle = colour("--ink");
  pen.beginPath();
  pen.arc(x(-1), y(2), 7, 0, 7);
  pen.stroke();
}

function axis(pen, width, height, pad, x, y) {
  pen.fillStyle = colour("--muted");
  pen.font = "14px system-ui, sans-serif";
  pen.textAlign = "center";
  for (let w = Math.ceil(AREA.left); w < AREA.right; w++) pen.fillText(String(w).replace("-", "−"), x(w), height - 18);
  pen.fillText("w₀", width - 14, height - 18);
  pen.textAlign = "right";
  for (let w = Math.ceil(AREA.low) + 1; w < AREA.high; w++) pen.fillText(String(w).replace("-", "−"), pad.left - 8, y(w) + 5);
  pen.fillText("w₁", pad.left - 8, 14);
}

function playOrStop() {
  const on = playing === null;
  find("#play").setAttribute("aria-pressed", on);
  find("#play").textContent = on ? "Stop" : "Play";
  if (on) playing = setInterval(stepDown, still.matches ? 600 : 120);
  else { clearInterval(playing); playing = null; }
}

function begin() {
  weights = [0.5, -0.5];
  path = [[...weights]];
  looked = [];
  drawMap();
  tell(null);
}

async function startMap() {
  data = await (await fetch("/api/two-weights")).json();
  square = moments();
  find("#step").addEventListener("click", stepDown);
  find("#play").addEventListener("click", playOrStop);
  find("#again").addEventListener("click", begin);
  const rated = () => { find("#rate-shown").textContent = rate().toPrecision(2); };
  find("#rate").addEventListener("input", rated);
  rated();
  begin();
}

/* A small network, epoch by epoch. */
let trained = null;
let replaying = null;

function drawEpoch() {
  if (!trained) return;
  const epoch = Number(find("#epoch").value), last = trained.answers.length - 1;
  find("#epoch-shown").textContent = epoch;
  const canvas = find("#scatter"), pen = canvas.getContext("2d"), {width, height} = canvas;
  const most = 15, x = (v) => 40 + (v + most) / (2 * most) * (width - 50), y = (v) => (most - v) / (2 * most) * (height - 36);
  pen.clearRect(0, 0, width, height);
  pen.strokeStyle = colour("--muted");
  pen.beginPath();
  pen.moveTo(x(-most), y(-most));
  pen.lineTo(x(most), y(most));
  pen.stroke();
  pen.fillStyle = colour("--muted");
  pen.font = "14px system-ui, sans-serif";
  pen.textAlign = "center";
  for (const v of [-10, 0, 10]) pen.fillText(String(v).replace("-", "−"), x(v), height - 18);
  pen.fillText("exact value", width / 2, height - 2);
  pen.textAlign = "right";
  for (const v of [-10, 0, 10]) pen.fillText(String(v).replace("-", "−"), 32, y(v) + 5);
  pen.textAlign = "left";
  pen.fillText("answer", 40, 14);
  let right = 0;
  trained.answers[epoch].forEach((said, n) => {
    const good = Math.abs(said - trained.values[n]) < 0.5;
    right += good;
    pen.fillStyle = colour(good ? "--green" : "--red");
    pen.beginPath();
    pen.arc(x(trained.values[n]), y(Math.max(-most, Math.min(most, said))), 4, 0, 7);
    pen.fill();
  });
  drawLosses(epoch, last);
  find("#epoch-words").textContent = `After ${epoch} ${epoch === 1 ? "epoch" : "epochs"}, each a look at all 1,907 sums: ` +
    `${right} of ${trained.values.length} answers round to the right value.`;
}

function drawLosses(epoch, last) {
  const canvas = find("#losses"), pen = canvas.getContext("2d"), {width, height} = canvas;
  const logs = trained.losses.map((loss) => Math.log10(loss)), top = Math.ceil(Math.max(...logs)), low = Math.floor(Math.min(...logs));
  const x = (n) => 50 + n / last * (width - 60), y = (v) => 10 + (top - v) / (top - low) * (height - 40);
  pen.clearRect(0, 0, width, height);
  pen.fillStyle = colour("--muted");
  pen.strokeStyle = colour("--grid");
  pen.font = "14px system-ui, sans-serif";
  pen.textAlign = "right";
  for (let v = low; v <= top; v++) {
    pen.fillText(String(10 ** v), 44, y(v) + 5);
    pen.beginPath();
    pen.moveTo(50, y(v));
    pen.lineTo(width - 10, y(v));
    pen.stroke();
  }
  pen.textAlign = "left";
  pen.fillText("mean squared error by epoch", 50, height - 4);
  pen.strokeStyle = colour("--blue");
  pen.lineWidth = 2;
  pen.beginPath();
  logs.forEach((v, n) => (n ? pen.lineTo(x(n), y(v)) : pen.moveTo(x(n), y(v))));
  pen.stroke();
  pen.fillStyle = colour("--red");
  pen.beginPath();
  pen.arc(x(epoch), y(logs[epoch]), 5, 0, 7);
  pen.fill();
}

function replayOrStop() {
  const slider = find("#epoch"), on = replaying === null;
  find("#replay").setAttribute("aria-pressed", on);
  find("#replay").textContent = on ? "Stop" : "Play";
  if (!on) { clearInterval(replaying); replaying = null; return; }
  if (slider.value === slider.max) slider.value = 0;
  replaying = setInterval(() => {
    slider.value = Number(slider.value) + 1;
    drawEpoch();
    if (slider.value === slider.max) replayOrStop();
  }, still.matches ? 700 : 180);
}

async function startNetwork() {
  find("#epoch-words").textContent = "Training; this takes a few seconds.";
  trained = await (await fetch("/api/small-network")).json();
  find("#epoch").max = trained.answers.length - 1;
  find("#epoch").addEventListener("input", drawEpoch);
  find("#replay").addEventListener("click", replayOrStop);
  drawEpoch();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (data) drawMap(); drawEpoch(); });
answer();
startMap();
startNetwork();
