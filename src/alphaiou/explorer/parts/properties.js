// How 1 − IoU^α reweights a pair by its IoU: the closed forms of alphaiou.properties.

/** (eᶻ − 1)/z, 1 at z = 0. */
const exprel = (z) => (z === 0 ? 1 : Math.expm1(z) / z);

/** (1 − IoU^α) / (1 − IoU), α at IoU 1. */
function relativeLossWeight(iou, alpha) {
  if (iou <= 0.5) return (1 - iou ** alpha) / (1 - iou);
  const logIou = Math.log(iou);
  return (alpha * exprel(alpha * logIou)) / exprel(logIou);
}

/** α·IoU^(α−1): the absolute gradient of 1 − IoU^α by the IoU. */
const relativeGradientWeight = (iou, alpha) => alpha * iou ** (alpha - 1);

/** IoU − IoU^α. */
const absoluteLossWeight = (iou, alpha) => iou - iou ** alpha;

/** α·IoU^(α−1) − 1. */
const absoluteGradientWeight = (iou, alpha) => alpha * iou ** (alpha - 1) - 1;

/** The IoU at which α neither raises nor lowers the gradient; 1/e in the limit α → 1. */
const turningPoint = (alpha) =>
  alpha === 1 ? 1 / Math.E : Math.exp(-Math.log1p(alpha - 1) / (alpha - 1));

/** The same with a gain on the loss: where gain·α·IoU^(α−1) = 1; null where it is not, below 1. */
function gainedTurningPoint(alpha, gain) {
  if (gain === 1) return turningPoint(alpha);
  if (alpha === 1) return null;
  const point = (gain * alpha) ** (1 / (1 - alpha));
  return point < 1 ? point : null;
}
