// The lengths of a pair of boxes in units of its enclosing box, the hull: alphaiou.boxes in JS.

const FLOOR = 2 ** -800; // a hull's side below this is no extent at all
const SIDE_FLOOR = 1e-3; // below this share of the hull, a side as a denominator fades its gradient

/** The geometry of a pair; the prediction's numbers are the variables of every derivative. */
function pairGeometry(pred, target, format = "xyxy") {
  const [p, t] = relativeCorners(Dual.variables(pred), target.map(Dual.lift), format);
  const x = axisLengths(p[0], p[2], t[0], t[2]);
  const y = axisLengths(p[1], p[3], t[1], t[3]);
  const longer = Math.max(x.unit, y.unit, FLOOR);
  x.shape = x.unit / longer;
  y.shape = y.unit / longer;
  return { x, y, iou: intersectionOverUnion(x, y) };
}

/** Corners of both boxes; with centres and sides given, from the target's own centre. */
function relativeCorners(pred, target, format) {
  if (format === "xyxy") return [pred, target];
  const around = (x, y, [, , w, h]) =>
    [x.minus(w.times(0.5)), y.minus(h.times(0.5)), x.plus(w.times(0.5)), y.plus(h.times(0.5))];
  const origin = new Dual(0);
  return [
    around(pred[0].minus(target[0]), pred[1].minus(target[1]), pred),
    around(origin, origin, target),
  ];
}

function axisLengths(predLow, predHigh, targetLow, targetHigh) {
  const [low, high] = ordered(predLow, predHigh);
  const [lowT, highT] = ordered(targetLow, targetHigh);
  const hull = high.max(highT).minus(low.min(lowT));
  const overlap = high.min(highT).minus(low.max(lowT));
  const unit = hull.value;
  // Where both boxes are flat and in one place, the axis says nothing: it counts as a full unit.
  const flat = unit < FLOOR ? 1 : 0;
  const span = flat ? Infinity : unit;
  const axis = {
    unit,
    pred: high.minus(low).over(span).plus(flat),
    target: highT.minus(lowT).over(span).plus(flat),
    overlap: (overlap.value >= 0 ? overlap : new Dual(0)).over(span).plus(flat),
    gap: overlap.negative().relu().over(span),
    hull: hull.over(span).plus(flat),
    low: low.minus(lowT).over(span),
    high: high.minus(highT).over(span),
  };
  axis.center = axis.low.plus(axis.high).times(0.5);
  // From the edges of boxes that meet and the sides of boxes apart: no digits are lost.
  axis.growth = axis.gap.value > 0 ? axis.pred.minus(axis.target) : axis.high.minus(axis.low);
  return axis;
}

/** Corners as they are, or their midpoint twice where the second lies before the first. */
function ordered(low, high) {
  if (!(high.value < low.value)) return [low, high];
  const middle = low.times(0.5).plus(high.times(0.5));
  return [middle, middle];
}

function intersectionOverUnion(x, y) {
  const intersection = x.overlap.times(y.overlap);
  const union = x.pred.times(y.pred).plus(x.target.times(y.target)).minus(intersection);
  return union.value < FLOOR ? new Dual(0) : intersection.over(union);
}

/** x² + y². */
function normSquared(x, y) {
  return x.square().plus(y.square());
}

/** |(x, y)|² / c² with c the diagonal of the hull. */
function squaredDistance({ x, y }, alongX, alongY) {
  const length = normSquared(alongX.times(x.shape), alongY.times(y.shape));
  const diagonal = normSquared(x.hull.times(x.shape), y.hull.times(y.shape));
  return length.over(diagonal.atLeast(FLOOR));
}

/** The share of the hull that neither box covers, as a sum of its empty rectangles. */
function hullGap({ x, y }) {
  const [predX, targetX] = emptyParts(x);
  const [predY, targetY] = emptyParts(y);
  const beside = predX.times(targetY.plus(y.gap)).plus(targetX.times(predY.plus(y.gap)));
  const between = x.gap.times(y.hull).plus(y.gap.times(x.overlap));
  return beside.plus(between).over(x.hull.times(y.hull).atLeast(FLOOR));
}

/** How far each box reaches beyond the other along an axis. */
function emptyParts({ pred, target, gap, low, high }) {
  if (gap.value > 0) return [pred, target];
  return [low.negative().relu().plus(high.relu()), low.relu().plus(high.negative().relu())];
}

/** CIoU's βv; β is held constant in the gradient. */
function aspectPenalty({ x, y, iou }) {
  const angle = (side) => boundedAngle(x[side].times(x.shape), y[side].times(y.shape));
  const v = angle("target").minus(angle("pred")).square().times(4 / Math.PI ** 2);
  const beta = v.value / Math.max(1 - iou.value + v.value, FLOOR);
  return v.times(beta);
}

/** atan(side / other), finite for empty boxes; the gradient of a vanishing box fades. */
function boundedAngle(side, other) {
  const longer = Math.max(side.value, other.value);
  const unit = Math.max(longer, FLOOR);
  const angle = side.over(unit).atan2(other.over(unit).plus(longer === 0 ? 1 : 0));
  return angle.scaleGradient(Math.min(longer / SIDE_FLOOR, 1) ** 2);
}

/** A quotient by one box's side; the gradient fades as the side vanishes. */
function boundedRatio(numerator, side) {
  const quotient = numerator.over(side.atLeast(FLOOR));
  return quotient.scaleGradient(Math.min(side.value / SIDE_FLOOR, 1));
}
