// The lengths of a pair of oriented boxes in the target's frame: alphaiou.oriented in JS.

const LEAST_SHARE = 8 * Number.EPSILON; // a side is at least this share of the pair's unit
const PARALLEL = 2 ** -60; // an edge that spans less along an axis is parallel to the other

/** The geometry of a pair of (cx, cy, w, h, θ); lengths are in units of the pair. */
function orientedGeometry(pred, target) {
  const [x, y, w, h, angle] = Dual.variables(pred);
  const [tx, ty, tw, th, targetAngle] = target;
  const side = (length) => (length.value >= 0 ? length : new Dual(0));
  const [predSides, targetSides] = [[w, h], [tw, th].map(Dual.lift)].map((pair) => pair.map(side));
  const [dx, dy] = [x.minus(tx), y.minus(ty)];
  const lengths = [...predSides, ...targetSides, dx, dy].map(({ value }) => Math.abs(value));
  const unit = Math.max(...lengths);
  // Both are points in one place: all lengths count as 0.
  const span = unit < FLOOR ? Infinity : unit;
  const [cosine, sine] = [Math.cos(targetAngle), Math.sin(targetAngle)];
  const turn = angle.minus(targetAngle);
  const pair = {
    pred: predSides.map((length) => floored(length.over(span))),
    target: targetSides.map((length) => floored(length.over(span))),
    // From the target's centre to the prediction's, along the target's width and height.
    center: turned(dx.over(span), dy.over(span), new Dual(cosine), new Dual(sine)),
    cosine: turn.cos(),
    sine: turn.sin(),
  };
  pair.iou = orientedIou(pair);
  return pair;
}

/** A side of at least the least share, with the gradient of the side. */
const floored = (side) => (side.value < LEAST_SHARE ? side.chain(LEAST_SHARE, 1) : side);

/** A vector in a frame that is turned by an angle. */
const turned = (x, y, cosine, sine) =>
  [cosine.times(x).plus(sine.times(y)), cosine.times(y).minus(sine.times(x))];

const areaOf = ([w, h]) => w.times(h);

function orientedUnion({ pred, target, intersection }) {
  return areaOf(pred).plus(areaOf(target)).minus(intersection);
}

function orientedIou(pair) {
  const overlap = orientedIntersection(pair);
  pair.intersection = overlap;
  const union = orientedUnion(pair);
  // By way of what the boxes do not share, the slope of equal boxes is 0 to the last bit.
  const alone = areaOf(pair.pred).minus(overlap).plus(areaOf(pair.target).minus(overlap));
  const iou =
    2 * overlap.value > union.value
      ? alone.over(union).negative().plus(1)
      : overlap.over(union);
  // Rounding may give more than 1; the gradient stays.
  return iou.chain(Math.min(iou.value, 1), 1);
}

/** |B ∩ Bᵍ| by Green's theorem: ∮ clamp(x, −a, a) dy along the prediction's edges in |y| ≤ b. */
function orientedIntersection({ pred: [w, h], target, center, cosine, sine }) {
  const [a, b] = target.map((side) => side.times(0.5));
  const along = [cosine, sine].map((share) => share.times(w).times(0.5));
  const across = [sine.negative(), cosine].map((share) => share.times(h).times(0.5));
  const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([i, j]) =>
    center.map((place, axis) => place.plus(along[axis].times(i)).plus(across[axis].times(j))));
  const total = corners
    .map((corner, i) => edgeIntegral(corner, corners[(i + 1) % 4], a, b))
    .reduce((sum, part) => sum.plus(part));
  return total.value > 0 ? total : new Dual(0);
}

function edgeIntegral([x0, y0], [x1, y1], a, b) {
  const within = (value, limit) => value.min(limit).max(limit.negative());
  const [start, end, rise] = [within(y0, b), within(y1, b), y1.minus(y0)];
  const isFlat = Math.abs(rise.value) < PARALLEL;
  const at = (y) => x0.plus(y.minus(y0).over(rise).times(x1.minus(x0)));
  const [from, to] = isFlat ? [x0, x1] : [at(start), at(end)];
  const mean = within(from, a).plus(within(to, a)).times(0.5);
  const height = end.minus(start);
  const run = to.minus(from);
  if (Math.abs(run.value) < PARALLEL) return height.times(mean);
  // The mean of clamp(x) along the edge: that of its ends, and what the kinks at ±a add.
  const beyond = (clamped) => clamped(from).minus(from).minus(clamped(to).minus(to)).over(run);
  const right = beyond((x) => x.min(a)).times(a.minus(mean));
  const left = beyond((x) => x.max(a.negative())).times(a.plus(mean));
  return height.times(mean.plus(right).minus(left));
}

/** Sides of the smallest rectangle with the target's orientation that holds both boxes. */
function orientedHull({ pred: [w, h], target, center, cosine, sine }) {
  const [c, s] = [cosine.abs(), sine.abs()];
  const reach = [w.times(c).plus(h.times(s)), w.times(s).plus(h.times(c))];
  return target.map((side, axis) => {
    const [half, far] = [side.times(0.5), reach[axis].times(0.5)];
    const low = center[axis].minus(far).min(half.negative());
    return center[axis].plus(far).max(half).minus(low);
  });
}

/** GIoU's penalty |C ∖ (B ∪ Bᵍ)| / |C|. */
function orientedHullGap(pair) {
  const whole = areaOf(orientedHull(pair));
  const gap = whole.minus(orientedUnion(pair)).over(whole);
  // What rounding leaves where the boxes fill the hull.
  return gap.value < LEAST_SHARE ? new Dual(0) : gap;
}

/** DIoU's penalty ρ²/c². */
const orientedDistance = (pair) =>
  normSquared(...pair.center).over(normSquared(...orientedHull(pair)));

/** CIoU's βv with an angle: v = 4/π² |b − bᵍ|², b = atan w/h − π/4 along the direction 2θ. */
function orientedAspect({ pred, target, cosine, sine, iou }) {
  const shape = ([w, h]) => boundedAngle(w, h).minus(boundedAngle(h, w)).times(0.5);
  const [ours, theirs] = [shape(pred), shape(target)];
  const along = cosine.square().times(ours.minus(theirs).square());
  const v = along.plus(sine.square().times(ours.plus(theirs).square())).times(4 / Math.PI ** 2);
  return v.times(v.value / Math.max(1 - iou.value + v.value, FLOOR));
}
