// Charts: lines, marks, points and whiskers over two axes.

const CHART = { width: 420, height: 260, left: 44, right: 12, top: 12, bottom: 38 };
const SPILL = 6; // how far a point at the edge may reach beyond the axes
const COLOURS = 7;

/** Round numbers along an axis, about five of them. */
function ticks({ low, high, places }) {
  if (places) return places;
  const rough = (high - low) / 5;
  const scale = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * scale).find((s) => s >= 0.999 * rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => +((first + i) * step).toFixed(10));
}

/** A colour of its own for each line, and dashes once the colours are used up. */
const seriesStyle = (i) => `s${i % COLOURS}${i < COLOURS ? "" : " dashed"}`;

/** Where values lie in the drawing. */
function chartScales(x, y) {
  const { width, height, left, right, top, bottom } = CHART;
  return {
    px: (value) => left + ((width - left - right) * (value - x.low)) / (x.high - x.low),
    py: (value) => top + (height - top - bottom) * (1 - (value - y.low) / (y.high - y.low)),
  };
}

/** Lines and numbers at the ticks, and the name of the horizontal axis. */
function chartGrid(x, y, { px, py }) {
  const { width, height, left, right, bottom } = CHART;
  const text = (content, attributes) => {
    const element = svgElement("text", attributes);
    element.textContent = String(content).replace("-", "−");
    return element;
  };
  const levels = ticks(y).flatMap((value) => {
    const level = py(value);
    return [
      svgElement("line", { class: "grid", x1: left, x2: width - right, y1: level, y2: level }),
      text(value, { x: left - 6, y: level + 4, "text-anchor": "end" }),
    ];
  });
  const numbers = ticks(x).map((value) =>
    text(value, { x: px(value), y: height - bottom + 17, "text-anchor": "middle" }));
  const middle = (left + width - right) / 2;
  const name = text(x.label, { x: middle, y: height - 4, "text-anchor": "middle" });
  return [...levels, ...numbers, name];
}

/** What is plotted; what lies beyond the axes is cut off. */
function chartPlot({ px, py }, { lines = [], marks = [], dots = [], whiskers = [] }) {
  const { width, height, left, right, top, bottom } = CHART;
  const frame = {
    x: left,
    y: top - SPILL,
    width: width - left - right + SPILL,
    height: height - top - bottom + 2 * SPILL,
  };
  const viewBox = Object.values(frame).join(" ");
  return svgElement(
    "svg",
    { ...frame, viewBox, overflow: "hidden" },
    ...marks.map((at) =>
      svgElement("line", { class: "mark", x1: px(at), x2: px(at), y1: 0, y2: height })),
    ...lines.map(({ points, style }) => {
      const path = points.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ");
      return svgElement("polyline", { class: `line ${style}`, points: path });
    }),
    ...whiskers.map(({ at, low, high, style }) => {
      const ends = { x1: px(at), x2: px(at), y1: py(low), y2: py(high) };
      return svgElement("line", { class: `whisker ${style}`, ...ends });
    }),
    ...dots.map(({ at: [a, b], style }) =>
      svgElement("circle", { class: `dot ${style}`, cx: px(a), cy: py(b), r: 4.5 })),
  );
}

/** A chart in place of what an element held before. */
function drawChart(into, { label, x, y, ...plotted }) {
  const scales = chartScales(x, y);
  const viewBox = `0 0 ${CHART.width} ${CHART.height}`;
  into.replaceChildren(
    svgElement(
      "svg",
      { viewBox, role: "img", "aria-label": label },
      ...chartGrid(x, y, scales),
      chartPlot(scales, plotted),
    ),
  );
}
