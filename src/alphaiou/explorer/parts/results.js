// The records of trainings: scores, what α changes, and how sure that is.

const SCORES = Object.keys(DATA.columns);
const AP_THRESHOLDS = SCORES.filter((score) => /^ap\d/.test(score))
  .map((score) => Number(score.slice(2)));

const signed = (points) => `${points < 0 ? "−" : "+"}${Math.abs(points).toFixed(2)}`;

/** Values in the order of the columns, by the names of the scores. */
const byScore = (values) => Object.fromEntries(SCORES.map((score, i) => [score, values[i]]));

/** A change, and below it the interval if there are several seeds. */
const changeText = ([mean, low, high]) =>
  signed(mean) + (low === undefined ? "" : `\n${signed(low)} to ${signed(high)}`);

function drawResults() {
  const setting = DATA.results[Number(byId("setting").value)];
  if (!setting) {
    byId("result-note").textContent = "This copy of the page came without records of trainings.";
    return;
  }
  byId("result-note").textContent = `${setting.title}. ${seedText(setting.runs)}`;
  drawScores(setting.runs);
  drawChanges(changedRuns(setting.runs));
  drawSweep(setting.runs);
}

/** How much the seeds can say. */
function seedText(runs) {
  const seeds = runs.map((run) => run.seeds);
  if (Math.max(...seeds) === 1) return "One seed gives no interval.";
  const interval = "Below a change: its 95% interval (Student's t, from all runs of the setting).";
  const single = " Rows with one seed use the variance of the others.";
  return interval + (Math.min(...seeds) === 1 ? single : "");
}

function drawScores(runs) {
  const rows = runs.flatMap(({ name, seeds, scores, changes }) => [
    [name, String(seeds), ...scores.map((score) => score.toFixed(2))],
    ...(changes ? [["– change", "", ...changes.map(changeText)]] : []),
  ]);
  const styles = rows.map(([name]) => (name === "– change" ? "change" : ""));
  fillTable(byId("scores"), ["loss", "seeds", ...Object.values(DATA.columns)], rows, styles);
}

/** The runs with a baseline; of the chosen kind alone where all would be too many to tell apart. */
function changedRuns(runs) {
  const changed = runs.filter(({ changes }) => changes);
  if (changed.length <= COLOURS) return changed;
  const own = changed.filter(({ kind }) => kind === state.kind);
  return own.length ? own : changed.filter(({ kind }) => kind === changed[0].kind);
}

/** An axis, in percent, that holds all changes and zero. */
function changeAxis(changes) {
  const ends = [...changes.flat(), 0];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.07 * (high - low || 1);
  return { low: low - margin, high: high + margin };
}

/** Lines, points and whiskers of changes: a line for each list of [x, change]. */
function changeMarks(lists) {
  const points = lists.flatMap((list, i) =>
    list.map(([x, change]) => ({ x, change, style: seriesStyle(i) })));
  return {
    lines: lists.map((list, i) =>
      ({ points: list.map(([x, [mean]]) => [x, mean]), style: seriesStyle(i) })),
    dots: points.map(({ x, change: [mean], style }) => ({ at: [x, mean], style })),
    whiskers: points.filter(({ change }) => change.length > 1).map(
      ({ x, change: [, low, high], style }) => ({ at: x, low, high, style })),
  };
}

function drawLegend(id, names) {
  byId(id).replaceChildren(
    ...names.map((name, i) => htmlElement("span", name, { class: `key ${seriesStyle(i)}` })));
}

function drawChanges(runs) {
  const lists = runs.map(({ changes }) =>
    AP_THRESHOLDS.map((t) => [t, byScore(changes)[`ap${t}`]]));
  const marks = changeMarks(lists);
  const [low, high] = [48, 97];
  drawChart(byId("chart-change"), {
    label: "Change of AP against the IoU threshold, in points",
    x: { low, high, label: "IoU threshold of the AP, %" },
    y: changeAxis(lists.flat().map(([, change]) => change)),
    ...marks,
    lines: [{ points: [[low, 0], [high, 0]], style: "plain" }, ...marks.lines],
  });
  drawLegend("change-legend", runs.map(({ name }) => name));
}

/** The chosen score against α, a line for each kind; the mark is the α of the controls. */
function drawSweep(runs) {
  const score = byId("score").value;
  const swept = runs.filter(({ alpha, changes }) => alpha === 1 || (alpha !== null && changes));
  const kinds = [...new Set(swept.map(({ kind }) => kind))];
  const lists = kinds.map((kind) => swept.filter((run) => run.kind === kind)
    .map(({ alpha, changes }) => [alpha, changes ? byScore(changes)[score] : [0]]));
  const most = Math.max(...lists.flat().map(([alpha]) => alpha), 3);
  drawChart(byId("chart-sweep"), {
    label: `Change of ${DATA.columns[score]} against α, in points`,
    x: { low: 0, high: 1.05 * most, label: "α" },
    y: changeAxis(lists.flat().map(([, change]) => change)),
    marks: [state.alpha],
    ...changeMarks(lists),
  });
  drawLegend("sweep-legend", kinds.map((kind) => DATA.kinds[kind].title));
}

byId("setting").append(
  ...DATA.results.map(({ title }, i) => htmlElement("option", title, { value: i })));
byId("score").append(
  ...Object.entries(DATA.columns).map(([value, name]) => htmlElement("option", name, { value })));
byId("score").value = "map75_95";
for (const id of ["setting", "score"]) byId(id).addEventListener("change", redrawSoon);
byId("result-choice").hidden = DATA.results.length < 2;
views.push({ tab: "results", draw: drawResults });
