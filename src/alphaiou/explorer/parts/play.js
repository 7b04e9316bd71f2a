// The simulation, played: the chosen loss beside another one, from the same boxes.

const ITERATIONS = 200;
const SHOWN_BOXES = 60;
const SHARE_THRESHOLDS = [0.5, 0.75, 0.95];
const SEED = 7;
const play = { own: null, rival: null, key: "", running: false };

/** The chosen kind, if it is one of axis-aligned boxes: the simulation has no others. */
const simulatedKind = () => (state.kind in KINDS ? state.kind : START.kind);

/** The loss that the chosen one is set beside. */
function rivalLoss() {
  const choice = byId("rival").value;
  return choice === "plain" ? [simulatedKind(), PLAIN, 1] : [choice, powers(), state.gain];
}

function restartSimulation() {
  const cases = anchorPoints(Number(byId("points").value), SEED).flatMap(casesAt);
  play.running = false;
  play.own = new Descent(cases, simulatedKind(), powers(), state.gain, ITERATIONS);
  play.rival = new Descent(cases, ...rivalLoss(), ITERATIONS);
}

/** Once a frame while it plays; without motion, all the steps first and one picture at the end. */
function advance() {
  if (byId("simulation").hidden) play.running = false;
  if (!play.running) return;
  const start = performance.now();
  do {
    play.own.step();
    play.rival.step();
  } while (reducedMotion.matches && !play.own.finished && performance.now() - start < 50);
  play.running = !play.own.finished;
  if (!reducedMotion.matches || !play.running) drawSimulationState();
  if (play.running) requestAnimationFrame(advance);
}

function drawSimulation() {
  const choices = ["rival", "points"].map((id) => byId(id).value);
  const key = JSON.stringify([state.kind, powers(), state.gain, choices]);
  if (key !== play.key) {
    play.key = key;
    restartSimulation();
  }
  drawSimulationState();
}

function drawSimulationState() {
  const { own, rival } = play;
  byId("play").textContent = play.running ? "Pause" : own.finished ? "Play again" : "Play";
  const count = own.boxes.length.toLocaleString("en");
  byId("progress").textContent = `step ${own.iteration} of ${ITERATIONS}, ${count} boxes`;
  byId("own-name").textContent = descentName(own);
  byId("rival-name").textContent = descentName(rival);
  drawArena(byId("own-arena"), own, "--s0");
  drawArena(byId("rival-arena"), rival, "--s1");
  const lines = (value) => [own, rival].map((descent, i) =>
    ({ points: descent.curve.map((means, at) => [at, value(means)]), style: `s${i}` }));
  const x = { low: 0, high: ITERATIONS, label: "step" };
  drawChart(byId("chart-iou"), {
    label: "Mean IoU by step",
    x,
    y: { low: 0, high: 1.02 },
    lines: lines(({ iou }) => iou),
  });
  const worst = 1.05 * Math.max(...own.curve.concat(rival.curve).map(({ error }) => error));
  drawChart(byId("chart-error"), {
    label: "Mean error by step",
    x,
    y: { low: 0, high: worst },
    lines: lines(({ error }) => error),
  });
  drawShares();
}

const descentName = ({ kind, powers, gain }) =>
  lossName(kind, powers) + (gain === 1 ? "" : `, box gain ×${number(gain, 2)}`);

function drawArena(canvas, descent, name) {
  const { context, width } = sizedCanvas(canvas);
  const reach = 1.35 * RADIUS;
  const scale = width / (2 * reach);
  context.scale(scale, scale);
  context.translate(reach - CENTER, reach - CENTER);
  context.lineWidth = 1.3 / scale;
  context.strokeStyle = colour("--rule");
  context.beginPath();
  context.arc(CENTER, CENTER, RADIUS, 0, 2 * Math.PI);
  context.stroke();
  const outline = ([cx, cy, w, h]) => context.strokeRect(cx - w / 2, cy - h / 2, w, h);
  context.strokeStyle = colour(name);
  // 11, 34 or 114: without a factor in common with 7, it meets every area, ratio and target.
  const stride = Math.max(Math.floor(descent.boxes.length / SHOWN_BOXES), 1);
  for (let i = 0; i < descent.boxes.length; i += stride) {
    context.globalAlpha = 0.25 + 0.6 * descent.losses[i].iou;
    outline(descent.boxes[i]);
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--s2");
  context.setLineDash([4 / scale, 3 / scale]);
  descent.cases.slice(0, ASPECT_RATIOS.length).forEach(({ target }) => outline(target));
  const { iou } = descent.curve.at(-1);
  const label = `Boxes at step ${descent.iteration}, mean IoU ${number(iou, 2)}`;
  canvas.setAttribute("aria-label", label);
}

function drawShares() {
  const head = ["loss", ...SHARE_THRESHOLDS.map((t) => `IoU > ${t}`), "mean IoU", "mean error"];
  const rows = [[play.own, "own-name"], [play.rival, "rival-name"]].map(([descent, name]) => [
    byId(name).textContent,
    ...SHARE_THRESHOLDS.map((threshold) => percent(descent.shareAbove(threshold))),
    number(descent.curve.at(-1).iou),
    number(descent.curve.at(-1).error),
  ]);
  fillTable(byId("shares"), head, rows);
}

byId("rival").append(
  htmlElement("option", "the same as published (α = 1)", { value: "plain" }),
  ...Object.keys(KINDS).map((kind) =>
    htmlElement("option", `${DATA.kinds[kind].title}, same α`, { value: kind })),
);
byId("play").addEventListener("click", () => {
  if (play.own.finished) restartSimulation();
  play.running = !play.running;
  drawSimulationState();
  requestAnimationFrame(advance);
});
byId("step").addEventListener("click", () => {
  play.running = false;
  if (play.own.finished) restartSimulation();
  play.own.step();
  play.rival.step();
  drawSimulationState();
});
byId("restart").addEventListener("click", () => {
  restartSimulation();
  drawSimulationState();
});
for (const id of ["rival", "points"]) byId(id).addEventListener("change", redrawSoon);
views.push({ tab: "simulation", draw: drawSimulation });
