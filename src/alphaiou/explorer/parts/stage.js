// The stage: two boxes that mouse, finger and keyboard move, arrows on the sides of one of them.

const LEAST_SIDE = 6;
const KEY_STEP = 4;
// Lengths on the stage: the root shows weak pulls too; a pull of 1 is that of a target of area 1.
const ARROW = { scale: 55, longest: 95 };
const CORNERS = [
  { x: 0, y: 1, turn: "nwse" },
  { x: 2, y: 1, turn: "nesw" },
  { x: 2, y: 3, turn: "nwse" },
  { x: 0, y: 3, turn: "nesw" },
];
const PRESETS = {
  Apart: [[40, 40, 130, 110], [230, 160, 350, 260]],
  Near: [[52, 52, 176, 148], START.target],
  Close: [[140, 100, 270, 205], [150, 110, 290, 220]],
  Overlapping: [START.pred, START.target],
  "Same centre": [[180, 90, 260, 240], [150, 110, 290, 220]],
  Inside: [[170, 130, 220, 175], [150, 110, 290, 220]],
  Identical: [[150, 110, 290, 220], [150, 110, 290, 220]],
};

const stage = byId("stage");
const boxes = { target: makeBox("target", "s2"), pred: makeBox("pred", "s0") };
const overlay = svgElement("g", { "aria-hidden": "true" });

function makeBox(which, style) {
  const title = svgElement("text", {});
  title.textContent = which === "pred" ? "prediction" : "target";
  const body = svgElement("rect", { class: "body" });
  const ring = svgElement("rect", { class: "ring", rx: 3 });
  const grips = CORNERS.map(({ turn }) => ({
    reach: svgElement("circle", { class: `reach ${turn}`, r: 15 }),
    grip: svgElement("circle", { class: `grip ${turn}`, r: 5 }),
  }));
  const group = svgElement(
    "g",
    { class: `box ${which} ${style}`, tabindex: 0, role: "application" },
    body, ring, title,
  );
  // Beside the group, not in it: the corners of both boxes lie above both boxes.
  const handles = svgElement(
    "g",
    { class: `box ${which} ${style}`, "aria-hidden": "true" },
    ...grips.flatMap(({ grip, reach }) => [grip, reach]),
  );
  group.setAttribute("aria-roledescription", "movable box");
  group.setAttribute("aria-describedby", "stage-help");
  listenToPointer(body, (start, dx, dy) => {
    const held = heldBox(start, which);
    return { [held]: moved(start[held], dx, dy) };
  });
  CORNERS.forEach((corner, i) =>
    listenToPointer(grips[i].reach, (start, dx, dy) => ({
      [which]: resized(start[which], corner, dx, dy),
    })),
  );
  group.addEventListener("keydown", (event) => onKey(event, which));
  return { group, handles, body, ring, title, grips };
}

/** Dragging changes the state as it was when the pointer went down. */
function listenToPointer(element, patchOf) {
  let start = null;
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    start = { pred: state.pred, target: state.target, at: stagePoint(event) };
  });
  element.addEventListener("pointermove", (event) => {
    if (!start) return;
    const [x, y] = stagePoint(event);
    change(patchOf(start, x - start.at[0], y - start.at[1]));
  });
  for (const end of ["pointerup", "pointercancel"]) {
    element.addEventListener(end, () => {
      start = null;
    });
  }
}

/** The box under the pointer: a target that the prediction hides can still be held. */
function heldBox({ pred, target, at: [x, y] }, which) {
  const hidden = [0, 1].every((i) => pred[i] <= target[i] && target[i + 2] <= pred[i + 2]);
  const [x1, y1, x2, y2] = target;
  const onTarget = x1 <= x && x <= x2 && y1 <= y && y <= y2;
  const same = pred.every((place, i) => place === target[i]);
  return hidden && onTarget && !same ? "target" : which;
}

function stagePoint(event) {
  const { left, top, width } = stage.getBoundingClientRect();
  const scale = STAGE.width / width;
  return [(event.clientX - left) * scale, (event.clientY - top) * scale];
}

/** A box shifted, but not off the stage. */
function moved([x1, y1, x2, y2], dx, dy) {
  const within = (shift, low, high, end) => Math.min(Math.max(shift, -low), end - high);
  const right = within(dx, x1, x2, STAGE.width);
  const down = within(dy, y1, y2, STAGE.height);
  return [x1 + right, y1 + down, x2 + right, y2 + down];
}

/** A box with one corner shifted; no side becomes shorter than the least. */
function resized(box, corner, dx, dy) {
  const next = [...box];
  const put = (index, place, end) => {
    const opposite = box[(index + 2) % 4];
    const [low, high] = index < 2 ? [0, opposite - LEAST_SIDE] : [opposite + LEAST_SIDE, end];
    next[index] = Math.min(Math.max(place, low), high);
  };
  put(corner.x, box[corner.x] + dx, STAGE.width);
  put(corner.y, box[corner.y] + dy, STAGE.height);
  return next;
}

function onKey(event, which) {
  const along = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const direction = along[event.key];
  if (!direction || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const [dx, dy] = direction.map((sign) => sign * KEY_STEP);
  const box = state[which];
  change({ [which]: event.shiftKey ? resized(box, CORNERS[2], dx, dy) : moved(box, dx, dy) });
}

function placeBox({ group, body, ring, title, grips }, [x1, y1, x2, y2], name) {
  const put = (element, attributes) =>
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  put(body, { x: x1, y: y1, width: x2 - x1, height: y2 - y1 });
  put(ring, { x: x1 - 5, y: y1 - 5, width: x2 - x1 + 10, height: y2 - y1 + 10 });
  put(title, { x: x1 + 4, y: y1 > 18 ? y1 - 7 : y2 + 16 });
  CORNERS.forEach(({ x, y }, i) => {
    const place = { cx: [x1, 0, x2][x], cy: [0, y1, 0, y2][y] };
    put(grips[i].grip, place);
    put(grips[i].reach, place);
  });
  const [left, top, right, bottom] = [x1, y1, x2, y2].map(Math.round);
  group.setAttribute("aria-label", `${name}: ${left} to ${right} across, ${top} to ${bottom} down`);
}

/** An arrow from the middle of each side, along the way that makes the loss smaller. */
function pullArrows([x1, y1, x2, y2], gradient, unit) {
  const [cx, cy] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const places = [[x1, cy], [cx, y1], [x2, cy], [cx, y2]];
  return places.flatMap(([x, y], side) => {
    const pull = -gradient[side] * unit;
    const long = Math.min(ARROW.scale * Math.sqrt(Math.abs(pull)), ARROW.longest);
    if (long < 1) return [];
    const length = Math.sign(pull) * long;
    const across = side % 2 === 0;
    return [arrow(x, y, across ? length : 0, across ? 0 : length)];
  });
}

function arrow(x, y, dx, dy) {
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const head = Math.min(8, length);
  const [bx, by] = [x + dx - ux * head, y + dy - uy * head];
  const corners = [[x + dx, y + dy], [bx - uy * head * 0.5, by + ux * head * 0.5],
    [bx + uy * head * 0.5, by - ux * head * 0.5]];
  return svgElement(
    "g", { class: "pull" },
    svgElement("line", { x1: x, y1: y, x2: bx, y2: by }),
    svgElement("polygon", { points: corners.map((c) => c.join(",")).join(" "), "stroke-width": 0 }),
  );
}

function drawStage() {
  placeBox(boxes.target, state.target, "Target");
  placeBox(boxes.pred, state.pred, "Prediction");
  const loss = pairLoss(state.kind, state.pred, state.target, powers());
  const [, , w, h] = centred(state.target);
  const gradient = loss.gradient.map((x) => x * state.gain);
  const descent = descentWay(state.kind, powers(), state.gain, state.pred, state.target);
  const [cx, cy, width, height] = descent.way.at(-1);
  const points = descent.way.map(([x, y]) => `${x},${y}`).join(" ");
  overlay.replaceChildren(
    svgElement("rect", { class: "end", x: cx - width / 2, y: cy - height / 2, width, height }),
    svgElement("polyline", { class: "way", points }),
    ...pullArrows(state.pred, gradient, Math.sqrt(w * h)),
  );
  const now = `${lossName(state.kind, powers())} ${number(state.gain * loss.value)}`;
  announce(`IoU ${number(loss.iou)}, ${now}, descent: ${descentText(descent)}`);
}

/** Say it once nothing moves any more, so that a screen reader is not flooded. */
let announcing = 0;
function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    byId("announcement").textContent = text;
  }, 400);
}

stage.append(
  boxes.target.group, boxes.pred.group, overlay, boxes.target.handles, boxes.pred.handles,
);
for (const [name, [pred, target]] of Object.entries(PRESETS)) {
  const button = htmlElement("button", name, { type: "button" });
  button.addEventListener("click", () => change({ pred, target }));
  byId("presets").append(button);
}
views.push({ tab: "boxes", draw: drawStage });
