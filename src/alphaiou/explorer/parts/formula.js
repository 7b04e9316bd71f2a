// The one formula, L = 1 − S^α₁ + Σᵢ Pᵢ^α₂, and the caps on its slopes (alphaiou.numerics).

const SLOPE_FLOOR = 1e-6; // below this, the slope of a power α < 1 and of the logarithm is constant
const LOG_FLOOR = 2 ** -126; // the least similarity whose logarithm is taken

/** base^α for base ≥ 0 and α > 0. */
function power(base, alpha) {
  if (alpha === 1) return base;
  if (alpha < 1 && base.value < SLOPE_FLOOR) {
    return base.chain(base.value ** alpha, alpha * SLOPE_FLOOR ** (alpha - 1));
  }
  return base.pow(alpha);
}

/** 1 − S^α, and −log S where α is 0. */
function powerLoss(similarity, alpha) {
  if (alpha > 0) return power(similarity, alpha).negative().plus(1);
  const slope = -1 / Math.max(similarity.value, SLOPE_FLOOR);
  return similarity.chain(-Math.log(Math.max(similarity.value, LOG_FLOOR)), slope);
}

/**
 * The loss of one pair, with its gradient by the prediction's numbers and what it is made of.
 *
 * `powers` holds `alpha` (α₁) and `penaltyAlpha` (α₂; null: the same as α₁, 1 where that is 0).
 */
function pairLoss(kind, pred, target, powers, format = "xyxy") {
  const pair = pairGeometry(pred, target, format);
  const { similarity, penalties } = KINDS[kind](pair);
  const penaltyAlpha = powers.penaltyAlpha ?? (powers.alpha || 1);
  let loss = powerLoss(similarity, powers.alpha);
  for (const penalty of penalties) loss = loss.plus(power(penalty, penaltyAlpha));
  return {
    value: loss.value,
    gradient: loss.gradient,
    iou: pair.iou.value,
    similarity: similarity.value,
    penalties: penalties.map((penalty) => penalty.value),
  };
}
