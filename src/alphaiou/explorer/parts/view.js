// What the views share: the state, how it changes, and numbers, lists and tables as text.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DEGREE = Math.PI / 180;
const START = {
  kind: "diou",
  alpha: 3,
  penaltyAlpha: 3,
  tied: true,
  gain: 1,
  pred: [104, 72, 234, 184],
  target: [150, 110, 290, 220],
  oriented: false,
  angles: { pred: -20 * DEGREE, target: 10 * DEGREE }, // of oriented boxes, about their centres
};
const STAGE = { width: 400, height: 300 };
const PLAIN = { alpha: 1, penaltyAlpha: 1 };

const state = structuredClone(START);
const views = []; // { tab, draw }
const modes = []; // what to do when boxes become oriented, or axis-aligned again

const byId = (id) => document.getElementById(id);
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

/** Change the state; what is visible is drawn again with the next frame, once. */
function change(patch) {
  Object.assign(state, patch);
  if (state.tied) state.penaltyAlpha = state.alpha || 1;
  if (!(state.kind in kindsNow())) state.kind = START.kind;
  redrawSoon();
}

let redrawPending = false;
let drawnMode = null;
function redrawSoon() {
  if (redrawPending) return;
  redrawPending = true;
  requestAnimationFrame(() => {
    redrawPending = false;
    if (drawnMode !== state.oriented) {
      drawnMode = state.oriented;
      for (const show of modes) show();
    }
    for (const view of views) if (!view.tab || !byId(view.tab).hidden) view.draw();
  });
}

/** The kinds that read the boxes as they are. */
const kindsNow = () => (state.oriented ? ORIENTED_KINDS : KINDS);

/** A box as (cx, cy, w, h), and its angle if it is oriented. */
const boxNow = (which) =>
  [...centred(state[which]), ...(state.oriented ? [state.angles[which]] : [])];

/** The format of a box (cx, cy, w, h) that may have an angle. */
const formatOf = (box) => (box.length === 5 ? "cxcywhr" : "cxcywh");

/** The loss of the pair on the stage, with its gradient by the four sides, and by the angle. */
function lossNow(kind, powers) {
  if (!state.oriented) {
    const loss = pairLoss(kind, state.pred, state.target, powers);
    return { ...loss, sides: loss.gradient };
  }
  const loss = pairLoss(kind, boxNow("pred"), boxNow("target"), powers, "cxcywhr");
  const [x, y, w, h, angle] = loss.gradient;
  const [along, across] = rotated(x, y, -state.angles.pred).map((slope) => slope / 2);
  return { ...loss, sides: [along - w, across - h, along + w, across + h], angle };
}

/** A vector turned by an angle. */
function rotated(x, y, angle) {
  const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
  return [cosine * x - sine * y, sine * x + cosine * y];
}

/** An angle in degrees, from −90 to below 90: a rectangle turned by 180° is the same. */
const degrees = (angle) => angle / DEGREE - 180 * Math.floor(angle / DEGREE / 180 + 0.5);

const powers = () => ({ alpha: state.alpha, penaltyAlpha: state.penaltyAlpha });

/** The name of a loss as the package's tables have it. */
function lossName(kind, { alpha, penaltyAlpha }) {
  const name = DATA.kinds[kind].title;
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

/** Rows of text into a table; the first cell heads its row. */
function fillTable(table, head, rows, styles = []) {
  const line = (cells, style = "") => {
    const row = htmlElement("tr", "", { class: style });
    row.append(
      htmlElement("th", cells[0], { scope: "row" }),
      ...cells.slice(1).map((text) => htmlElement("td", text)),
    );
    return row;
  };
  const top = htmlElement("thead");
  const titles = htmlElement("tr");
  titles.append(...head.map((text) => htmlElement("th", text, { scope: "col" })));
  top.append(titles);
  const body = htmlElement("tbody");
  body.append(...rows.map((cells, i) => line(cells, styles[i])));
  table.replaceChildren(top, body);
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
