// The loss by the angle of the prediction, for each kind of oriented boxes.

const MOST_LOSS = 6; // what lies above, as −log S may, is cut off

const isGaussian = (kind) => !(kind in KINDS);

/** At whole degrees, and where the lines bend: at the angles of the boxes, and square to them. */
function chartAngles() {
  const whole = Array.from({ length: 181 }, (_, i) => i - 90);
  const bends = Object.values(state.angles).flatMap((angle) =>
    [degrees(angle), degrees(angle + Math.PI / 2)]);
  return [...whole, ...bends].sort((a, b) => a - b);
}

/** The losses of all kinds with the prediction at an angle in degrees. */
function lossesAt(angle) {
  const box = [...boxNow("pred").slice(0, 4), angle * DEGREE];
  const pair = orientedGeometry(box, boxNow("target"));
  return Object.values(ORIENTED_KINDS).map((terms) =>
    state.gain * lossOfTerms(terms(pair), powers()).value);
}

function drawAngles() {
  if (!state.oriented) return;
  const now = degrees(state.angles.pred);
  const angles = chartAngles();
  const losses = angles.map(lossesAt);
  const lossesNow = lossesAt(now);
  const kinds = Object.keys(ORIENTED_KINDS).map((kind, i) => {
    const chosen = kind === state.kind ? "chosen" : "";
    return { kind, i, style: `s${i % COLOURS} ${isGaussian(kind) ? "dashed" : ""} ${chosen}` };
  });
  const highest = Math.max(...losses.flat(), 0.01);
  drawChart(byId("chart-angle"), {
    label: `Loss against the angle of the prediction, which is ${angleText(state.angles.pred)} now`,
    x: { low: -90, high: 90, places: [-90, -45, 0, 45, 90], label: "θ of the prediction, degrees" },
    y: { low: 0, high: 1.04 * Math.min(highest, MOST_LOSS * state.gain) },
    lines: kinds.map(({ i, style }) =>
      ({ points: angles.map((angle, at) => [angle, losses[at][i]]), style })),
    marks: [now],
    dots: kinds.map(({ i, style }) => ({ at: [now, lossesNow[i]], style })),
  });
  byId("angle-legend").replaceChildren(
    ...kinds.map(({ kind, i, style }) => {
      const key = htmlElement("div", "", { class: `key ${style}` });
      key.append(
        htmlElement("span", DATA.kinds[kind].title),
        htmlElement("span", number(lossesNow[i])),
      );
      return key;
    }),
  );
}

views.push({ tab: "boxes", draw: drawAngles });
