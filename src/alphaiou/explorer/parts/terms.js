// The kinds: each a similarity S and penalties P of one pair, as in alphaiou.losses.kinds.

const GAP_CEILING = 1e3; // PIoU's exponential is 0 long before an edge is this many sides away
const NWD_CONSTANT = 12.8; // pixels
const BIOU_BETA = 0.2;
const INTERPOLATION = 0.98; // InterpIoU's c
const [LEAST, MOST] = [0.6, 0.99]; // of D-InterpIoU's c

const distancePenalty = (pair) => squaredDistance(pair, pair.x.center, pair.y.center);

/** |w − wᵍ| / max(w, wᵍ). */
const sideDifference = ({ growth, pred, target }) => boundedRatio(growth.abs(), pred.max(target));

/** Ω = Σ (1 − exp(−|w − wᵍ|/max(w, wᵍ)))⁴. */
function sideMismatch({ x, y }) {
  const part = (axis) => sideDifference(axis).negative().expm1().negative().pow(4);
  return part(x).plus(part(y));
}

function siouPenalty(pair) {
  const { x, y } = pair;
  const [dx, dy] = [x, y].map((axis) => axis.center.times(axis.shape).abs());
  // Centres that coincide have no angle; the distance is 0 there whatever γ is.
  const squared = normSquared(dx, dy).atLeast(1e-30);
  const gamma = dx.times(dy).times(2).over(squared).negative().plus(2);
  const part = ({ center, hull }) =>
    center.over(hull).square().times(gamma).negative().expm1().negative();
  return part(x).plus(part(y)).plus(sideMismatch(pair)).times(0.5);
}

/** With the default scale of 0, at which the target's shape has no weight. */
const shapeIouPenalties = (pair) => [distancePenalty(pair), sideMismatch(pair).times(0.5)];

function piouPenalty({ x, y }) {
  const gap = ({ low, high, target }) => {
    const shift = low.abs().plus(high.abs());
    const far = shift.value > GAP_CEILING * target.value;
    return far ? new Dual(GAP_CEILING) : boundedRatio(shift, target);
  };
  return gap(x).plus(gap(y)).times(0.25).square().negative().expm1().negative();
}

function nwdSimilarity({ x, y }) {
  const spread = normSquared(x.growth.times(0.5 * x.shape), y.growth.times(0.5 * y.shape));
  const place = normSquared(x.center.times(x.shape), y.center.times(y.shape));
  const squared = place.plus(spread);
  return squared.root().times(-Math.max(x.unit, y.unit) / NWD_CONSTANT).exp();
}

function biouPenalties({ x, y }) {
  const place = ({ center, target }) => {
    const offset = center.abs().times(2);
    const misfit = boundedRatio(offset.times(2), target.plus(offset));
    return misfit.value > 1 ? new Dual(1) : misfit;
  };
  const huber = (misfit) =>
    misfit.value < BIOU_BETA
      ? misfit.square().over(2 * BIOU_BETA)
      : misfit.minus(0.5 * BIOU_BETA);
  return [place(x), place(y), sideDifference(x), sideDifference(y)].map(huber);
}

/** 1 − IoU of the target and a box on the way to it, which keeps a share of the offset. */
function interpolatedMisfit({ x, y }, keep) {
  const part = ({ low, high, target }) => {
    const [left, right] = [low.times(keep), high.times(keep)];
    const missed = left.relu().plus(right.negative().relu());
    return [target.minus(missed), left.negative().relu().plus(right.relu()), missed];
  };
  const [[bothX, extraX, missedX], [bothY, extraY, missedY]] = [part(x), part(y)];
  const beside = (alongX, alongY) => alongX.times(bothY.plus(alongY)).plus(bothX.times(alongY));
  const alone = beside(extraX, extraY).plus(beside(missedX, missedY));
  const union = bothX.times(bothY).plus(alone);
  const nothing = bothX.value <= 0 || bothY.value <= 0 || union.value < FLOOR;
  return nothing ? new Dual(1) : alone.over(union);
}

const ratioSquared = ({ growth, hull }) => growth.over(hull).square();

const KINDS = {
  iou: (pair) => ({ similarity: pair.iou, penalties: [] }),
  giou: (pair) => ({ similarity: pair.iou, penalties: [hullGap(pair)] }),
  diou: (pair) => ({ similarity: pair.iou, penalties: [distancePenalty(pair)] }),
  ciou: (pair) => ({
    similarity: pair.iou,
    penalties: [distancePenalty(pair), aspectPenalty(pair)],
  }),
  eiou: (pair) => ({
    similarity: pair.iou,
    penalties: [distancePenalty(pair), ratioSquared(pair.x), ratioSquared(pair.y)],
  }),
  siou: (pair) => ({ similarity: pair.iou, penalties: [siouPenalty(pair)] }),
  mpdiou: (pair) => ({
    similarity: pair.iou,
    penalties: [
      squaredDistance(pair, pair.x.low, pair.y.low),
      squaredDistance(pair, pair.x.high, pair.y.high),
    ],
  }),
  shape_iou: (pair) => ({ similarity: pair.iou, penalties: shapeIouPenalties(pair) }),
  piou: (pair) => ({ similarity: pair.iou, penalties: [piouPenalty(pair)] }),
  nwd: (pair) => ({ similarity: nwdSimilarity(pair), penalties: [] }),
  biou: (pair) => ({ similarity: new Dual(1), penalties: biouPenalties(pair) }),
  interpiou: (pair) => ({
    similarity: pair.iou,
    penalties: [interpolatedMisfit(pair, 1 - INTERPOLATION)],
  }),
  d_interpiou: (pair) => ({
    similarity: pair.iou,
    penalties: [interpolatedMisfit(pair, Math.max(Math.min(pair.iou.value, 1 - LEAST), 1 - MOST))],
  }),
};

/** The kinds of oriented boxes. */
const ORIENTED_KINDS = {
  iou: (pair) => ({ similarity: pair.iou, penalties: [] }),
  giou: (pair) => ({ similarity: pair.iou, penalties: [orientedHullGap(pair)] }),
  diou: (pair) => ({ similarity: pair.iou, penalties: [orientedDistance(pair)] }),
  ciou: (pair) => ({
    similarity: pair.iou,
    penalties: [orientedDistance(pair), orientedAspect(pair)],
  }),
  probiou: (pair) => ({ similarity: hellinger(pair), penalties: [] }),
  kld: (pair) => ({ similarity: ofDistance(kullbackLeibler(pair)), penalties: [] }),
  gwd: (pair) => ({ similarity: ofDistance(wasserstein(pair)), penalties: [] }),
  kfiou: (pair) => ({ similarity: kalmanOverlap(pair), penalties: [orientedDistance(pair)] }),
};
