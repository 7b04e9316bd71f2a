// The loss by the place of the prediction's centre, and the way of descent: a panel for each kind.

const MESH = { columns: 41, rows: 31 };
const BANDS = 14;
const FRAME_BUDGET = 10; // milliseconds of a frame for panels that are out of date

const panels = Object.fromEntries(
  Object.keys(DATA.kinds).map((kind) => {
    const button = htmlElement("button", "", { type: "button" });
    const canvas = htmlElement("canvas", "", { "aria-hidden": "true" });
    const caption = htmlElement("span", "", { class: "caption" });
    const [name, end] = [htmlElement("span", DATA.kinds[kind].title), htmlElement("span")];
    caption.append(name, end);
    button.append(canvas, caption);
    button.addEventListener("click", () => change({ kind }));
    byId("surfaces").append(button);
    return [kind, { button, canvas, end, key: "", mesh: null }];
  }),
);

/** The loss with the prediction's centre at every point of a mesh over the stage. */
function surfaceMesh(kind, powers, pred, target) {
  return Array.from({ length: MESH.rows }, (_, row) =>
    Array.from({ length: MESH.columns }, (_, column) => {
      const cx = (STAGE.width * column) / (MESH.columns - 1);
      const cy = (STAGE.height * row) / (MESH.rows - 1);
      return pairLoss(kind, [cx, cy, ...pred.slice(2)], target, powers, formatOf(target)).value;
    }),
  );
}

/** Between the points of a mesh: linear along both axes. */
function meshAt(mesh, u, v) {
  const [x, y] = [u * (MESH.columns - 1), v * (MESH.rows - 1)];
  const column = Math.min(Math.floor(x), MESH.columns - 2);
  const row = Math.min(Math.floor(y), MESH.rows - 2);
  const [fx, fy] = [x - column, y - row];
  const [upper, lower] = [mesh[row], mesh[row + 1]];
  const above = upper[column] * (1 - fx) + upper[column + 1] * fx;
  const below = lower[column] * (1 - fx) + lower[column + 1] * fx;
  return above * (1 - fy) + below * fy;
}

/** The colours of the bands, from the lowest loss to the highest. */
function bandColours() {
  const stops = ["--low", "--middle", "--high"].map((name) => colour(name).split(" ").map(Number));
  return Array.from({ length: BANDS }, (_, band) => {
    const place = (2 * band) / (BANDS - 1);
    const from = Math.min(Math.floor(place), 1);
    return stops[from].map((c, i) => c + (stops[from + 1][i] - c) * (place - from));
  });
}

function paintSurface(context, mesh, width, height) {
  const values = mesh.flat();
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const colours = bandColours();
  const image = context.createImageData(width, height);
  for (let y = 0, at = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1, at += 4) {
      const share = (meshAt(mesh, x / (width - 1), y / (height - 1)) - low) / (high - low || 1);
      // Between two equal points rounding may give a little less or more than both.
      const [r, g, b] = colours[Math.min(Math.max(Math.floor(share * BANDS), 0), BANDS - 1)];
      image.data.set([r, g, b, 255], at);
    }
  }
  context.putImageData(image, 0, 0);
}

function drawPanel(kind) {
  const panel = panels[kind];
  const { context, width } = sizedCanvas(panel.canvas);
  paintSurface(context, panel.mesh, panel.canvas.width, panel.canvas.height);
  const scale = width / STAGE.width;
  const descent = descentWay(kind, powers(), state.gain, boxNow("pred"), boxNow("target"));
  context.scale(scale, scale);
  context.lineWidth = 1.5 / scale;
  context.setLineDash([5 / scale, 3 / scale]);
  context.strokeStyle = colour("--outline");
  outlineBox(context, boxNow("target"));
  context.setLineDash([]);
  drawWay(context, descent.way, scale);
  panel.end.textContent = descentText(descent);
}

function outlineBox(context, [cx, cy, w, h, angle = 0]) {
  context.save();
  context.translate(cx, cy);
  context.rotate(angle);
  context.strokeRect(-w / 2, -h / 2, w, h);
  context.restore();
}

/** A line from a ring where descent starts to a disc where it ends. */
function drawWay(context, way, scale) {
  context.strokeStyle = context.fillStyle = colour("--path");
  context.lineWidth = 2.2 / scale;
  context.beginPath();
  way.forEach(([x, y]) => context.lineTo(x, y));
  context.stroke();
  const circle = ([x, y]) => {
    context.beginPath();
    context.arc(x, y, 3.5 / scale, 0, 2 * Math.PI);
  };
  circle(way.at(-1));
  context.fill();
  circle(way[0]);
  context.fillStyle = colour("--panel");
  context.fill();
  context.stroke();
}

let outdated = [];
let painting = false;

/** Panels that are out of date, a few in every frame: the boxes follow the hand meanwhile. */
function paintSome() {
  if (byId("boxes").hidden) outdated = [];
  outdated = outdated.filter((kind) => kind in kindsNow());
  const start = performance.now();
  while (outdated.length && performance.now() - start < FRAME_BUDGET) {
    const kind = outdated.shift();
    const panel = panels[kind];
    const [pred, target] = [boxNow("pred"), boxNow("target")];
    const key = JSON.stringify([pred.slice(2).map((x) => x.toFixed(6)), target, powers()]);
    if (panel.key !== key) {
      panel.mesh = surfaceMesh(kind, powers(), pred, target);
      panel.key = key;
    }
    drawPanel(kind);
  }
  painting = outdated.length > 0;
  if (painting) requestAnimationFrame(paintSome);
}

function drawSurfaces() {
  for (const [kind, { button }] of Object.entries(panels)) {
    button.setAttribute("aria-pressed", String(kind === state.kind));
    button.hidden = !(kind in kindsNow());
  }
  // Those that wait stay in their order, so that none waits for ever while a box is dragged.
  outdated = [...new Set([...outdated, ...Object.keys(kindsNow())])];
  if (!painting) {
    painting = true;
    requestAnimationFrame(paintSome);
  }
}

views.push({ tab: "boxes", draw: drawSurfaces });
