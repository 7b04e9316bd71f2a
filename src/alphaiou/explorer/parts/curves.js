// What α does to the loss by the IoU alone: the paper's Figure 1 and its properties 2 to 5.

const IOUS = Array.from({ length: 201 }, (_, i) => Math.max(i / 200, 1e-6));
const IOU_AXIS = { low: 0, high: 1, label: "IoU" };

const curve = (f, style) => ({ points: IOUS.map((iou) => [iou, f(iou)]), style });

/** Two lines, a grey one where the plain loss is, the turning point and this pair. */
function drawWeights(id, label, y, shown, plain) {
  const { alpha, gain } = state;
  const { iou } = lossNow("iou", PLAIN);
  const point = alpha > 0 ? gainedTurningPoint(alpha, gain) : null;
  drawChart(byId(id), {
    label: `${label} against the IoU, α ${alpha}, weight ${gain}`,
    x: IOU_AXIS,
    y,
    lines: [curve(plain, "plain"), ...shown.map((f, i) => curve(f, `s${i}`))],
    marks: point === null ? [] : [point],
    dots: shown.map((f, i) => ({ at: [iou, f(Math.max(iou, 1e-6))], style: `s${i}` })),
  });
}

function drawCurves() {
  const { alpha, gain } = state;
  const loss = (iou) => gain * (alpha > 0 ? 1 - iou ** alpha : -Math.log(iou));
  const gradient = (iou) => gain * (alpha > 0 ? relativeGradientWeight(iou, alpha) : 1 / iou);
  const steep = Math.min(Math.max(gain * Math.max(alpha, 1), 2), 12);
  const upTo = (high, low = 0) => ({ low, high: 1.04 * high });
  drawWeights("chart-loss", "Loss", upTo(Math.max(gain * (alpha > 0 ? 1 : 4), 1)), [loss],
    (iou) => 1 - iou);
  drawWeights("chart-gradient", "Absolute gradient", upTo(steep), [gradient], () => 1);
  // −log IoU / (1 − IoU) is 1 at IoU 1.
  const logRatio = (iou) => (iou < 1 ? -Math.log(iou) / (1 - iou) : 1);
  const ratio = (iou) => gain * (alpha > 0 ? relativeLossWeight(iou, alpha) : logRatio(iou));
  drawWeights("chart-relative", "Relative reweighting", upTo(steep), [ratio, gradient], () => 1);
  // At weight 1 these are IoU − IoU^α and α·IoU^(α−1) − 1.
  const difference = (iou) => loss(iou) - (1 - iou);
  drawWeights("chart-absolute", "Absolute reweighting", upTo(steep - 1, -1.04),
    [difference, (iou) => gradient(iou) - 1], () => 0);
  byId("turning").textContent = turningText();
}

/** What the turning point says, in a sentence. */
function turningText() {
  const { alpha, gain } = state;
  if (alpha === 0) return "α = 0 is −log IoU, whose gradient is weight/IoU.";
  if (alpha === 1 && gain === 1) {
    return "α = 1 with weight 1 is the plain IoU loss: move α to see what it changes.";
  }
  const point = gainedTurningPoint(alpha, gain);
  if (point === null) {
    const stronger = gain * relativeGradientWeight(0.5, alpha) > 1 ? "larger" : "smaller";
    return `The gradient is ${stronger} than that of the plain loss at every IoU.`;
  }
  const [above, below, end] =
    alpha > 1 ? ["larger", "smaller", "up"] : ["smaller", "larger", "down"];
  return `Turning point: IoU ${number(point)}. Above it the gradient is ${above} than that of `
    + `the plain loss, ${end} to ×${number(gain * alpha, 2)} at IoU 1; below it ${below}.`;
}

views.push({ tab: "curves", draw: drawCurves });
