// What the views share: the state, how it changes, numbers as text, and charts.

const DATA = JSON.parse(document.getElementById("data").textContent);
const START = {
  kind: "diou",
  alpha: 3,
  penaltyAlpha: 3,
  tied: true,
  gain: 1,
  pred: [104, 72, 234, 184],
  target: [150, 110, 290, 220],
};
const STAGE = { width: 400, height: 300 };
const PLAIN = { alpha: 1, penaltyAlpha: 1 };

const state = structuredClone(START);
const views = []; // { tab, draw }

const byId = (id) => document.getElementById(id);
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** Change the state; what is visible is drawn again with the next frame, once. */
function change(patch) {
  Object.assign(state, patch);
  if (state.tied) state.penaltyAlpha = state.alpha || 1;
  redrawSoon();
}

let redrawPending = false;
function redrawSoon() {
  if (redrawPending) return;
  redrawPending = true;
  requestAnimationFrame(() => {
    redrawPending = false;
    for (const view of views) if (!view.tab || !byId(view.tab).hidden) view.draw();
  });
}

const powers = () => ({ alpha: state.alpha, penaltyAlpha: state.penaltyAlpha });

/** The name of a loss as the package's tables have it. */
function lossName(kind, { alpha, penaltyAlpha }) {
  const name = DATA.names[kind];
  const untied = penaltyAlpha !== (alpha || 1);
  if (alpha === 1 && !untied) return name;
  return `α-${name} (α=${alpha}${untied ? `, α₂=${penaltyAlpha}` : ""})`;
}

/** Three digits that matter, and a true minus. */
function number(x, digits = 3) {
  const magnitude = Math.abs(x);
  const text =
    magnitude !== 0 && (magnitude < 5e-4 || magnitude >= 1e5)
      ? x.toExponential(1)
      : x.toFixed(magnitude >= 100 ? 0 : digits);
  return text.replace("-", "−");
}

const percent = (x) => `${(100 * x).toFixed(0)}%`;

/** An element of SVG. */
function svgElement(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** An element of HTML with text in it. */
function htmlElement(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

/** Pairs of a term and its value into a <dl>. */
function fillFacts(list, facts) {
  list.replaceChildren(
    ...facts.flatMap(([term, value]) => [htmlElement("dt", term), htmlElement("dd", value)]),
  );
}

/** A canvas with as many pixels as it covers on the screen, and its size in CSS pixels. */
function sizedCanvas(canvas) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width, height };
}

const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

/** Round numbers along an axis, about five of them. */
function ticks({ low, high }) {
  const rough = (high - low) / 5;
  const scale = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * scale).find((s) => s >= 0.999 * rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toFixed(10));
}

const CHART = { width: 420, height: 260, left: 44, right: 12, top: 12, bottom: 38 };

/** Lines, marks, points and whiskers over two axes, into an element of the page. */
function drawChart(into, { label, x, y, lines = [], marks = [], dots = [], whiskers = [] }) {
  const { width, height, left, right, top, bottom } = CHART;
  const px = (value) => left + ((width - left - right) * (value - x.low)) / (x.high - x.low);
  const py = (value) => top + (height - top - bottom) * (1 - (value - y.low) / (y.high - y.low));
  const text = (content, attributes) => {
    const element = svgElement("text", attributes);
    element.textContent = content;
    return element;
  };
  const chart = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  chart.setAttribute("aria-label", label);
  for (const value of ticks(y)) {
    const level = py(value);
    chart.append(
      svgElement("line", { class: "grid", x1: left, x2: width - right, y1: level, y2: level }),
      text(axisNumber(value), { x: left - 6, y: level + 4, "text-anchor": "end" }),
    );
  }
  for (const value of ticks(x)) {
    const place = { x: px(value), y: height - bottom + 17, "text-anchor": "middle" };
    chart.append(text(axisNumber(value), place));
  }
  const middle = (left + width - right) / 2;
  chart.append(text(x.label, { x: middle, y: height - 4, "text-anchor": "middle" }));
  // What lies beyond the axes is cut off.
  const plot = svgElement("svg", {
    x: left, y: top - 6, width: width - left - right + 6, height: height - top - bottom + 12,
    viewBox: `${left} ${top - 6} ${width - left - right + 6} ${height - top - bottom + 12}`,
    overflow: "hidden",
  });
  for (const mark of marks) {
    const place = px(mark);
    plot.append(svgElement("line", { class: "mark", x1: place, x2: place, y1: 0, y2: height }));
  }
  for (const { points, style } of lines) {
    const path = points.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ");
    plot.append(svgElement("polyline", { class: `line ${style}`, points: path }));
  }
  for (const { at, low, high, style } of whiskers) {
    const ends = { x1: px(at), x2: px(at), y1: py(low), y2: py(high) };
    plot.append(svgElement("line", { class: `whisker ${style}`, ...ends }));
  }
  for (const { at, style } of dots) {
    plot.append(svgElement("circle", { class: `dot ${style}`, cx: px(at[0]), cy: py(at[1]), r: 4.5 }));
  }
  chart.append(plot);
  into.replaceChildren(chart);
}

const axisNumber = (value) => String(value).replace("-", "−");
