// The regression simulation of the DIoU paper, as in alphaiou.losses.simulate, on fewer points.

const CENTER = 10;
const RADIUS = 3;
const ASPECT_RATIOS = [1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4]; // width : height
const AREAS = [0.5, 0.67, 0.75, 1, 1.33, 1.5, 2];
const MIN_SIDE = 1e-3;
const LEARNING_RATE = 0.1;

/** η at an iteration: divided by 10 after 80 % and again after 90 %. */
function stepSize(iteration, iterations) {
  const decays = (10 * iteration >= 8 * iterations) + (10 * iteration >= 9 * iterations);
  return LEARNING_RATE * 0.1 ** decays;
}

/** One step of a box: B ← B − η·(2 − IoU)·∂L/∂B, sides kept above the least; θ has its own η. */
function descendOnce(box, loss, rate, leastSide = MIN_SIDE, angleRate = rate) {
  const [x, y, w, h, ...angle] = box.map((number, i) =>
    number - (i < 4 ? rate : angleRate) * (2 - loss.iou) * loss.gradient[i]);
  return [x, y, Math.max(w, leastSide), Math.max(h, leastSide), ...angle];
}

/** Boxes (cx, cy, w, h) at a point, of every area and aspect ratio, with every target. */
function casesAt([cx, cy]) {
  const sides = (area, ratio) => [Math.sqrt(area * ratio), Math.sqrt(area / ratio)];
  return AREAS.flatMap((area) =>
    ASPECT_RATIOS.flatMap((ratio) =>
      ASPECT_RATIOS.map((targetRatio) => ({
        box: [cx, cy, ...sides(area, ratio)],
        target: [CENTER, CENTER, ...sides(1, targetRatio)],
      })),
    ),
  );
}

/** Points uniform in the disc, the same for the same seed. */
function anchorPoints(count, seed) {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => {
    const radius = RADIUS * Math.sqrt(random());
    const angle = 2 * Math.PI * random();
    return [CENTER + radius * Math.cos(angle), CENTER + radius * Math.sin(angle)];
  });
}

/** Numbers in [0, 1) from a counter that a hash scatters. */
function seededRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let word = state;
    word = Math.imul(word ^ (word >>> 16), 0x21f0aaad);
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97);
    return ((word ^ (word >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Some cases under one loss, moved all together. */
class Descent {
  constructor(cases, kind, powers, gain, iterations) {
    Object.assign(this, { cases, kind, powers, gain, iterations, iteration: 0 });
    this.boxes = cases.map(({ box }) => box);
    this.measure();
    this.curve = [this.means()];
  }

  measure() {
    this.losses = this.boxes.map((box, i) =>
      pairLoss(this.kind, box, this.cases[i].target, this.powers, "cxcywh"),
    );
  }

  means() {
    const mean = (numbers) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
    const error = (box, i) =>
      box.reduce((sum, x, axis) => sum + Math.abs(x - this.cases[i].target[axis]), 0);
    return { iou: mean(this.losses.map(({ iou }) => iou)), error: mean(this.boxes.map(error)) };
  }

  step() {
    const rate = this.gain * stepSize(this.iteration, this.iterations);
    this.boxes = this.boxes.map((box, i) => descendOnce(box, this.losses[i], rate));
    this.iteration += 1;
    this.measure();
    this.curve.push(this.means());
  }

  get finished() {
    return this.iteration >= this.iterations;
  }

  shareAbove(threshold) {
    return this.losses.filter(({ iou }) => iou > threshold).length / this.losses.length;
  }
}
