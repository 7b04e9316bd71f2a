// The loss of the pair: the formula with its numbers, the pull on each side, every loss in a table.

const SIDES = ["left", "top", "right", "bottom"];
const PER = 100; // pixels, for slopes that read well
const SUBSCRIPTS = "₁₂₃₄";

/** The formula with the numbers of this pair: `0.96 = 1 · ( 1 − 0.33³ + 0.08³ )`. */
function drawNumbers({ value, similarity, penalties }) {
  const raised = (base, exponent) => {
    const text = number(base);
    return [text.includes("e") ? `(${text})` : text, htmlElement("sup", String(exponent))];
  };
  const similarityTerm =
    state.alpha === 0
      ? [`− log ${number(similarity)}`]
      : ["1 − ", ...raised(similarity, state.alpha)];
  byId("numbers").replaceChildren(
    `${number(state.gain * value)} = ${number(state.gain, 2)} · ( `,
    ...similarityTerm,
    ...penalties.flatMap((penalty) => [" + ", ...raised(penalty, state.penaltyAlpha)]),
    " )",
  );
}

function drawFormula() {
  const loss = lossNow(state.kind, powers());
  const { similarity, penalties } = DATA.kinds[state.kind];
  byId("formula-title").textContent = `${lossName(state.kind, powers())} of this pair`;
  drawNumbers(loss);
  const { pred, target } = state.angles;
  fillFacts(byId("facts"), [
    ...(state.oriented ? [["θ and θᵍ", `${angleText(pred)}, ${angleText(target)}`]] : []),
    ["IoU", number(loss.iou, 4)],
    [`S, ${similarity}`, number(loss.similarity, 4)],
    ...loss.penalties.map((penalty, i) =>
      [`P${SUBSCRIPTS[i]}, ${penalties[i]}`, number(penalty, 4)]),
  ]);
  fillFacts(byId("pull"), SIDES.map((side, i) => [side, pullText(side, loss.sides[i])]));
  if (state.oriented) {
    const facts = [htmlElement("dt", "angle, per radian"), htmlElement("dd", turnText(loss.angle))];
    byId("pull").append(...facts);
  }
}

const angleText = (angle) => `${Math.round(degrees(angle))}°`.replace("-", "−");

/** A pull on the angle, with the way in which it turns the box. */
function turnText(slope) {
  const pull = -slope * state.gain;
  if (Math.abs(pull) < 5e-7) return "0";
  return `${number(Math.abs(pull))} ${pull < 0 ? "↺" : "↻"}`;
}

/** A pull with the direction in which it moves a side. */
function pullText(side, slope) {
  const pull = -slope * state.gain * PER;
  if (Math.abs(pull) < 5e-7) return "0";
  const [back, forth] = side === "left" || side === "right" ? ["←", "→"] : ["↑", "↓"];
  return `${number(Math.abs(pull))} ${pull < 0 ? back : forth}`;
}

function drawLossTable() {
  const rows = Object.keys(kindsNow()).map((kind) => {
    const loss = lossNow(kind, powers());
    const plain = lossNow(kind, PLAIN);
    const penalty = loss.penalties.reduce((sum, p) => sum + p ** state.penaltyAlpha, 0);
    return { kind, loss, plain, penalty, slope: PER * state.gain * Math.hypot(...loss.sides) };
  });
  const steepest = Math.max(...rows.map(({ slope }) => slope), 1e-12);
  rows.forEach(({ kind, loss, plain, penalty, slope }) => {
    const { row, cells, slopeText, bar, turnCell } = lossRows[kind];
    row.classList.toggle("chosen", kind === state.kind);
    const numbers = [loss.similarity, penalty, plain.value, state.gain * loss.value];
    numbers.forEach((value, i) => {
      cells[i].textContent = number(value);
    });
    slopeText.textContent = number(slope);
    turnCell.textContent = state.oriented ? turnText(loss.angle) : "";
    bar.style.width = `calc((100% - 4.8em) * ${slope / steepest})`;
  });
}

/** The rows stay, so that the focus does too; only their numbers change. */
const lossRows = Object.fromEntries(
  Object.keys(DATA.kinds).map((kind) => {
    const row = htmlElement("tr");
    const head = htmlElement("th", "", { scope: "row" });
    const button = htmlElement("button", DATA.kinds[kind].title, { type: "button" });
    button.addEventListener("click", () => change({ kind }));
    head.append(button);
    const cells = ["wide-only", "wide-only", "", ""].map((style) =>
      htmlElement("td", "", { class: style }));
    const [slopeText, bar] = [htmlElement("span"), htmlElement("i")];
    const slopeCell = htmlElement("td", "", { class: "bar" });
    slopeCell.append(slopeText, bar);
    row.append(head, ...cells, slopeCell);
    const turnCell = htmlElement("td");
    return [kind, { row, cells, slopeText, bar, turnCell, slopeCell }];
  }),
);

modes.push(() => {
  byId("losses").classList.toggle("with-angle", state.oriented);
  byId("losses").tBodies[0].replaceChildren(
    ...Object.keys(kindsNow()).map((kind) => lossRows[kind].row),
  );
  for (const { turnCell, slopeCell } of Object.values(lossRows)) {
    if (state.oriented) slopeCell.after(turnCell);
    else turnCell.remove();
  }
});
views.push({ tab: "boxes", draw: drawFormula }, { tab: "boxes", draw: drawLossTable });
