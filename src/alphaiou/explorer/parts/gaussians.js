// Similarities of oriented boxes as Gaussians, in sums of squares: alphaiou.losses.gaussians in JS.

const SERIES = 0.5; // below this |v|, eᵛ − 1 − v is a series: subtracting would lose its digits
const SERIES_TERMS = 14;

/** ProbIoU's 1 − √(1 − e^(−B)), B the Bhattacharyya distance. */
function hellinger(pair) {
  const { pred, target, total } = areasOf(pair);
  const mismatch = gaussianMismatch(pair, total);
  const center = turned(...pair.center, pair.cosine, pair.sine);
  const apart = [[pair.pred, center], [pair.target, pair.center]]
    .map(([[w, h], [x, y]]) => normSquared(h.times(x).over(total), w.times(y).over(total)))
    .reduce((sum, part) => sum.plus(part));
  const z = pred.minus(target).over(total);
  const sizes =
    Math.abs(z.value) < 0.5
      ? z.square().negative().log1p()
      : pred.over(total).times(target.over(total)).times(4).log();
  const shapes = mismatch.log1p().minus(sizes).times(0.5);
  const distance = apart.times(3).over(mismatch.plus(1)).plus(shapes);
  return distance.negative().expm1().negative().root().negative().plus(1);
}

/** KLD's √D, D the divergence of the target from the prediction. */
function kullbackLeibler({ pred, target, center, cosine, sine }) {
  const ratios = ([w, h]) =>
    [w.over(pred[0]), h.over(pred[1])]
      .map((ratio) => expMinusLine(ratio.log().times(2)))
      .reduce((sum, part) => sum.plus(part));
  const along = cosine.square().times(ratios(target));
  const across = sine.square().times(ratios([target[1], target[0]]));
  const [x, y] = turned(...center, cosine, sine);
  const apart = normSquared(x.over(pred[0]), y.over(pred[1]));
  return apart.times(2).plus(along.plus(across).times(0.5)).root();
}

/** GWD's √(D / √|B||Bᵍ|), D the squared Wasserstein distance. */
function wasserstein(pair) {
  const [w, h] = pair.pred;
  const [tw, th] = pair.target;
  const ways = [[pair.cosine.square(), tw, th], [pair.sine.square(), th, tw]];
  const sum = (part) => ways.map((way) => part(...way)).reduce((one, other) => one.plus(other));
  const product = sum((share, u, v) => share.times(w.times(u).plus(h.times(v)).square()));
  const differences = sum((share, u, v) => {
    const apart = normSquared(w.minus(u), h.minus(v));
    return share.times(apart).times(normSquared(w.plus(u), h.plus(v)));
  });
  const sizes = normSquared(w, h).plus(normSquared(tw, th));
  const shapes = differences.over(sizes.plus(product.root().times(2)));
  const { pred, target } = areasOf(pair);
  const distance = normSquared(...pair.center).plus(shapes.times(0.25));
  return distance.root().over(pred.times(target).root().root());
}

/** Three times KFIoU. */
function kalmanOverlap(pair) {
  const { pred, target, total } = areasOf(pair);
  const sizes = pred.minus(target).over(total).square().negative().plus(1);
  const ratio = sizes.over(gaussianMismatch(pair, total).plus(1).root());
  return ratio.times(3).over(ratio.negative().plus(4));
}

/** 1/(1 + ln(1 + distance)). */
const ofDistance = (distance) => new Dual(1).over(distance.log1p().plus(1));

function areasOf(pair) {
  const [pred, target] = [areaOf(pair.pred), areaOf(pair.target)];
  return { pred, target, total: pred.plus(target) };
}

/** (cos²(whᵍ − hwᵍ)² + sin²(wwᵍ − hhᵍ)²) / (|B| + |Bᵍ|)². */
function gaussianMismatch({ pred: [w, h], target: [tw, th], cosine, sine }, total) {
  const along = w.times(th).minus(h.times(tw)).over(total);
  const across = w.times(tw).minus(h.times(th)).over(total);
  return normSquared(cosine.times(along), sine.times(across));
}

/** eᵛ − 1 − v, 0 or more, with all its digits. */
function expMinusLine(v) {
  if (Math.abs(v.value) >= SERIES) return v.expm1().minus(v);
  let series = new Dual(1);
  for (let term = SERIES_TERMS; term > 2; term -= 1) series = v.over(term).times(series).plus(1);
  return v.square().times(series).times(0.5);
}
