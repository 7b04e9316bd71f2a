// Gradient descent of the pair on the stage, by the rule of the simulation with shorter steps.

const DESCENT_STEPS = 600;
const DESCENT_RATE = 0.01; // a tenth of the simulation's: a path rather than jumps
const ARRIVED = 0.95; // the IoU at which descent has done its work

/** (cx, cy, w, h) of corners. */
const centred = ([x1, y1, x2, y2]) => [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1];

/**
 * The boxes on the way from a prediction under one loss, and the IoU at its end.
 *
 * Boxes are (cx, cy, w, h) or (cx, cy, w, h, θ). The rule is that of targets of area 1, whatever
 * the pixels: with s the root of the target's area, a step in pixels is s² times one by the
 * gradient in pixels; an angle has no unit.
 */
function descentWay(kind, powers, gain, pred, target) {
  const area = target[2] * target[3];
  const lossOf = (box) => pairLoss(kind, box, target, powers, formatOf(box));
  const rate = gain * DESCENT_RATE;
  const way = [pred];
  let loss = lossOf(way[0]);
  while (way.length <= DESCENT_STEPS && loss.iou < ARRIVED) {
    way.push(descendOnce(way.at(-1), loss, area * rate, MIN_SIDE * Math.sqrt(area), rate));
    loss = lossOf(way.at(-1));
  }
  return { way, iou: loss.iou };
}

/** How a descent ended: after how many steps it arrived, or how far it got. */
const descentText = ({ way, iou }) =>
  iou < ARRIVED ? `IoU ${number(iou, 2)}` : `${way.length - 1} steps`;
