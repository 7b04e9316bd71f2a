// The stage: two boxes that mouse, finger and keyboard move, arrows on the sides of one of them.
//
// A box is its corners before it is turned about its centre; axis-aligned boxes have the angle 0.

const LEAST_SIDE = 6;
const KEY_STEP = 4;
const KEY_TURN = 3 * DEGREE;
const KNOB = 22; // how far beyond a corner, along both sides, the handle that turns a box lies
// Lengths on the stage: the root shows weak pulls too; a pull of 1 is that of a target of area 1.
const ARROW = { scale: 55, longest: 95 };
const CORNERS = [{ x: 0, y: 1 }, { x: 2, y: 1 }, { x: 2, y: 3 }, { x: 0, y: 3 }];
const CURSORS = ["nwse", "ns", "nesw", "ew"]; // of the first corner, at every 45°
const PRESETS = {
  Apart: [[40, 40, 130, 110], [230, 160, 350, 260]],
  Near: [[52, 52, 176, 148], START.target],
  Close: [[140, 100, 270, 205], [150, 110, 290, 220]],
  Overlapping: [START.pred, START.target],
  "Same centre": [[180, 90, 260, 240], [150, 110, 290, 220]],
  Inside: [[170, 130, 220, 175], [150, 110, 290, 220]],
  Identical: [[150, 110, 290, 220], [150, 110, 290, 220]],
};
// Of oriented boxes, with the angles in degrees.
const ORIENTED_PRESETS = {
  Turned: [[130, 125, 290, 175], [120, 130, 280, 180], 30, 0],
  Apart: [[45, 55, 145, 95], [220, 175, 350, 235], 60, -15],
  Crossed: [[120, 130, 280, 175], [120, 130, 280, 175], 80, 0],
  Square: [[145, 95, 255, 205], [145, 95, 255, 205], 40, 0],
  "w and h exchanged": [[170, 70, 230, 230], [120, 120, 280, 180], 90, 0],
  Identical: [[120, 110, 280, 190], [120, 110, 280, 190], 20, 20],
};

const stage = byId("stage");
const boxes = { target: makeBox("target", "s2"), pred: makeBox("pred", "s0") };
const overlay = svgElement("g", { "aria-hidden": "true" });

function makeBox(which, style) {
  const title = svgElement("text", {});
  title.textContent = which === "pred" ? "prediction" : "target";
  const body = svgElement("rect", { class: "body" });
  const ring = svgElement("rect", { class: "ring", rx: 3 });
  const grips = CORNERS.map(() => ({
    reach: svgElement("circle", { r: 15 }),
    grip: svgElement("circle", { class: "grip", r: 5 }),
  }));
  const shape = svgElement("g", {}, body, ring);
  const knob = {
    stem: svgElement("line", { class: "stem" }),
    grip: svgElement("circle", { class: "knob", r: 6 }),
    reach: svgElement("circle", { class: "reach turn", r: 15 }),
  };
  const group = svgElement(
    "g",
    { class: `box ${which} ${style}`, tabindex: 0, role: "application" },
    shape, title,
  );
  // Beside the group, not in it: the corners of both boxes lie above both boxes.
  const handles = svgElement(
    "g",
    { class: `box ${which} ${style}`, "aria-hidden": "true" },
    ...Object.values(knob),
    ...grips.flatMap(({ grip, reach }) => [grip, reach]),
  );
  group.setAttribute("aria-roledescription", "movable box");
  group.setAttribute("aria-describedby", "stage-help");
  listenToPointer(body, (start, dx, dy) => {
    const held = heldBox(start, which);
    return { [held]: movedNow(start[held], dx, dy) };
  });
  CORNERS.forEach((corner, i) =>
    listenToPointer(grips[i].reach, (start, dx, dy) => ({
      [which]: resizedNow(start[which], start.angles[which], corner, dx, dy),
    })),
  );
  listenToPointer(knob.reach, (start, dx, dy) => {
    const [cx, cy] = centred(start[which]);
    const [x, y] = [start.at[0] - cx, start.at[1] - cy];
    return turnedBy(which, Math.atan2(y + dy, x + dx) - Math.atan2(y, x), start.angles);
  });
  group.addEventListener("keydown", (event) => onKey(event, which));
  return { group, handles, shape, body, ring, title, grips, knob };
}

/** Dragging changes the state as it was when the pointer went down. */
function listenToPointer(element, patchOf) {
  let start = null;
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    const { pred, target, angles } = state;
    start = { pred, target, angles, at: stagePoint(event) };
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
function heldBox({ pred, target, angles, at }, which) {
  const [predAngle, targetAngle] = [angleNow(angles.pred), angleNow(angles.target)];
  const hidden = turnedCorners(target, targetAngle).every((corner) => holds(pred, predAngle, corner));
  const same = predAngle === targetAngle && pred.every((place, i) => place === target[i]);
  return hidden && holds(target, targetAngle, at) && !same ? "target" : which;
}

const angleNow = (angle) => (state.oriented ? angle : 0);

/** Whether a point lies in a turned box. */
function holds(box, angle, [x, y]) {
  const [cx, cy, w, h] = centred(box);
  const [along, across] = rotated(x - cx, y - cy, -angle);
  const within = 1e-6; // what rounding may put beside a shared edge
  return Math.abs(along) <= w / 2 + within && Math.abs(across) <= h / 2 + within;
}

function turnedCorners(box, angle) {
  return CORNERS.map(({ x, y }) => turnedPoint(box, angle, [box[x], box[y]]));
}

/** Where a point comes to lie when a box, and the point with it, is turned. */
function turnedPoint(box, angle, [x, y]) {
  const [cx, cy] = centred(box);
  const [dx, dy] = rotated(x - cx, y - cy, angle);
  return [cx + dx, cy + dy];
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

/** A box shifted; of an oriented one the centre stays on the stage. */
function movedNow(box, dx, dy) {
  if (!state.oriented) return moved(box, dx, dy);
  const [cx, cy, w, h] = centred(box);
  const within = (place, end) => Math.min(Math.max(place, 0), end);
  return cornersOf(within(cx + dx, STAGE.width), within(cy + dy, STAGE.height), w, h);
}

const cornersOf = (cx, cy, w, h) => [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2];

/** A box with one corner shifted, within a room; no side becomes shorter than the least. */
function resized(box, corner, dx, dy, room = [0, 0, STAGE.width, STAGE.height]) {
  const next = [...box];
  const put = (index, place) => {
    const opposite = box[(index + 2) % 4];
    const [low, high] =
      index < 2 ? [room[index], opposite - LEAST_SIDE] : [opposite + LEAST_SIDE, room[index]];
    next[index] = Math.min(Math.max(place, low), high);
  };
  put(corner.x, box[corner.x] + dx);
  put(corner.y, box[corner.y] + dy);
  return next;
}

/** The same for a shift on the screen of a box that may be turned: the opposite corner stays. */
function resizedNow(box, angle, corner, dx, dy) {
  if (!state.oriented) return resized(box, corner, dx, dy);
  const [x1, y1, x2, y2] = box;
  const { width, height } = STAGE;
  const room = [x2 - width, y2 - height, x1 + width, y1 + height];
  const next = resized(box, corner, ...rotated(dx, dy, -angle), room);
  const [cx, cy, w, h] = centred(next);
  return cornersOf(...turnedPoint(box, angle, [cx, cy]), w, h);
}

/** What changes when a box is turned; an angle stays within a full turn. */
function turnedBy(which, turn, angles) {
  const full = 2 * Math.PI;
  const angle = angles[which] + turn;
  return { angles: { ...angles, [which]: angle - full * Math.floor(angle / full + 0.5) } };
}

function onKey(event, which) {
  const turn = state.oriented ? keyTurn(event) : 0;
  if (turn) {
    event.preventDefault();
    change(turnedBy(which, turn * KEY_TURN, state.angles));
    return;
  }
  const along = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const direction = along[event.key];
  if (!direction || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const [dx, dy] = direction.map((sign) => sign * KEY_STEP);
  const box = state[which];
  const angle = state.angles[which];
  // An arrow to the right makes the box wider, however it is turned.
  const resize = () => resizedNow(box, angle, CORNERS[2], ...rotated(dx, dy, angleNow(angle)));
  change({ [which]: event.shiftKey ? resize() : movedNow(box, dx, dy) });
}

/** Which way a key turns a box: 1 is clockwise. Some keyboards need Alt to write a bracket. */
function keyTurn({ key, altKey, ctrlKey, metaKey }) {
  const byArrow = altKey && !ctrlKey && !metaKey;
  return { "[": -1, "]": 1, ...(byArrow ? { ArrowLeft: -1, ArrowRight: 1 } : {}) }[key] ?? 0;
}

const put = (element, attributes) =>
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));

function placeBox({ group, handles, shape, body, ring, title, grips, knob }, which, name) {
  const [box, angle] = [state[which], angleNow(state.angles[which])];
  const [x1, y1, x2, y2] = box;
  const places = turnedCorners(box, angle);
  const [left, top, right, bottom] = [Math.min, Math.max].flatMap((end) =>
    [0, 1].map((axis) => end(...places.map((place) => place[axis]))));
  for (const part of [shape, handles]) put(part, { transform: aboutCenter(box, angle) });
  put(body, { x: x1, y: y1, width: x2 - x1, height: y2 - y1 });
  put(ring, { x: x1 - 5, y: y1 - 5, width: x2 - x1 + 10, height: y2 - y1 + 10 });
  const below = Math.min(bottom + 16, STAGE.height - 4);
  put(title, { x: Math.max(left, 0) + 4, y: top > 18 ? top - 7 : below });
  CORNERS.forEach(({ x, y }, i) => {
    const place = { cx: [x1, 0, x2][x], cy: [0, y1, 0, y2][y] };
    put(grips[i].grip, place);
    const cursor = CURSORS[(((i * 2 + Math.round(angle / DEGREE / 45)) % 4) + 4) % 4];
    put(grips[i].reach, { ...place, class: `reach ${cursor}` });
  });
  placeKnob(knob, which);
  const label = state.oriented
    ? `centre ${Math.round((x1 + x2) / 2)} across, ${Math.round((y1 + y2) / 2)} down, `
      + `${Math.round(x2 - x1)} by ${Math.round(y2 - y1)}, turned by ${angleText(angle)}`
    : `${Math.round(x1)} to ${Math.round(x2)} across, ${Math.round(y1)} to ${Math.round(y2)} down`;
  group.setAttribute("aria-label", `${name}: ${label}`);
}

const aboutCenter = (box, angle) => {
  const [cx, cy] = centred(box);
  return `rotate(${angle / DEGREE} ${cx} ${cy})`;
};

/** Where the handle that turns a box lies before it is turned, and the corner it belongs to. */
function knobPlace(which) {
  const [box, angle] = [state[which], angleNow(state.angles[which])];
  const first = which === "pred" ? 1 : 2; // so that those of identical boxes can both be held
  const places = CORNERS.map((_, i) => {
    const { x, y } = CORNERS[(first + i) % 4];
    const corner = [box[x], box[y]];
    return { corner, knob: [box[x] + (x ? KNOB : -KNOB), box[y] + (y === 3 ? KNOB : -KNOB)] };
  });
  const isOnStage = ({ knob }) => {
    const [x, y] = turnedPoint(box, angle, knob);
    return x > 8 && x < STAGE.width - 8 && y > 8 && y < STAGE.height - 8;
  };
  return places.find(isOnStage) ?? places[0];
}

function placeKnob({ stem, grip, reach }, which) {
  const { corner: [x1, y1], knob: [cx, cy] } = knobPlace(which);
  put(stem, { x1, y1, x2: cx, y2: cy });
  for (const circle of [grip, reach]) put(circle, { cx, cy });
  for (const element of [stem, grip, reach]) {
    element.style.display = state.oriented ? "" : "none";
  }
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
  const head = Math.min(8, length);
  const [bx, by] = [x + dx - (dx / length) * head, y + dy - (dy / length) * head];
  return svgElement(
    "g", { class: "pull" },
    svgElement("line", { x1: x, y1: y, x2: bx, y2: by }),
    arrowHead([bx, by], [x + dx, y + dy]),
  );
}

/** A triangle from the middle of its base to its tip. */
function arrowHead([bx, by], [x, y]) {
  const [dx, dy] = [0.5 * (x - bx), 0.5 * (y - by)];
  const corners = [[x, y], [bx - dy, by + dx], [bx + dy, by - dx]];
  return svgElement("polygon", { points: pointList(corners), "stroke-width": 0 });
}

const pointList = (points) => points.map((point) => point.join(",")).join(" ");

/** An arc from the handle that turns the box, along the way that makes the loss smaller. */
function turnArrows(slope) {
  const [cx, cy] = centred(state.pred);
  const { knob: [x, y] } = knobPlace("pred");
  const radius = Math.hypot(x - cx, y - cy);
  const long = Math.min(ARROW.scale * Math.sqrt(Math.abs(slope)), ARROW.longest);
  if (long < 1) return [];
  const way = -Math.sign(slope);
  const start = Math.atan2(y - cy, x - cx) + (way * 7) / radius; // from the edge of the handle
  const sweep = Math.min(long, 2 * radius);
  const base = sweep - Math.min(8, sweep);
  const at = (length) => {
    const angle = start + (way * length) / radius;
    return [cx + radius * Math.cos(angle), cy + radius * Math.sin(angle)];
  };
  const arc = Array.from({ length: 17 }, (_, i) => at((base * i) / 16));
  return [
    svgElement(
      "g", { class: "pull turn" },
      svgElement("polyline", { points: pointList(arc), fill: "none" }),
      arrowHead(arc.at(-1), at(sweep)),
    ),
  ];
}

function drawStage() {
  placeBox(boxes.target, "target", "Target");
  placeBox(boxes.pred, "pred", "Prediction");
  const loss = lossNow(state.kind, powers());
  const [, , w, h] = centred(state.target);
  const gradient = loss.sides.map((x) => x * state.gain);
  const [pred, target] = [boxNow("pred"), boxNow("target")];
  const descent = descentWay(state.kind, powers(), state.gain, pred, target);
  const [cx, cy, width, height, end = 0] = descent.way.at(-1);
  const last = cornersOf(cx, cy, width, height);
  const [x, y] = last;
  const transform = aboutCenter(last, end);
  const points = pointList(descent.way.map((box) => box.slice(0, 2)));
  const angle = angleNow(state.angles.pred);
  overlay.replaceChildren(
    svgElement("rect", { class: "end", x, y, width, height, transform }),
    svgElement("polyline", { class: "way", points }),
    svgElement(
      "g", { transform: aboutCenter(state.pred, angle) },
      ...pullArrows(state.pred, gradient, Math.sqrt(w * h)),
      ...(state.oriented ? turnArrows(loss.angle * state.gain) : []),
    ),
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
modes.push(() => {
  const presets = Object.entries(state.oriented ? ORIENTED_PRESETS : PRESETS);
  byId("presets").replaceChildren(...presets.map(([name, [pred, target, ...angles]]) => {
    const button = htmlElement("button", name, { type: "button" });
    const [predAngle, targetAngle] = angles.map((angle) => angle * DEGREE);
    const turns = angles.length ? { angles: { pred: predAngle, target: targetAngle } } : {};
    button.addEventListener("click", () => change({ pred, target, ...turns }));
    return button;
  }));
});
views.push({ tab: "boxes", draw: drawStage });
