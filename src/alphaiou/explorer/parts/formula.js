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

/** The loss of the terms of a pair; `powers` are those of `pairLoss`. */
function lossOfTerms({ similarity, penalties }, { alpha, penaltyAlpha }) {
  const penaltyPower = penaltyAlpha ?? (alpha || 1);
  return penalties.reduce(
    (loss, penalty) => loss.plus(power(penalty, penaltyPower)),
    powerLoss(similarity, alpha),
  );
}

/**
 * The loss of one pair, with its gradient by the prediction's numbers and what it is made of.
 *
 * `powers` holds `alpha` (α₁) and `penaltyAlpha` (α₂; null: the same as α₁, 1 where that is 0).
 * `format` is xyxy, cxcywh, or cxcywhr for oriented boxes.
 */
function pairLoss(kind, pred, target, powers, format = "xyxy") {
  const isOriented = format === "cxcywhr";
  const pair = isOriented ? orientedGeometry(pred, target) : pairGeometry(pred, target, format);
  const terms = (isOriented ? ORIENTED_KINDS : KINDS)[kind](pair);
  const loss = lossOfTerms(terms, powers);
  return {
    value: loss.value,
    gradient: loss.gradient.slice(0, pred.length),
    iou: pair.iou.value,
    similarity: terms.similarity.value,
    penalties: terms.penalties.map((penalty) => penalty.value),
  };
}
