// The records of trainings: scores, what α changes, and how sure that is.

const SCORE_COLUMNS = { ap50: "AP50", ap75: "AP75", ap85: "AP85", ap95: "AP95", map: "mAP", map75_95: "mAP75:95" };
const THRESHOLDS = [50, 55, 60, 65, 70, 75, 80, 85, 90, 95];
const SERIES = 7;

const points = (share) => (100 * share).toFixed(2);
const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(2)}`;

/** A change with its interval where several seeds give one. */
const changeText = ({ mean, low, high }) =>
  signed(mean) + (low === null ? "" : ` (${signed(low)} to ${signed(high)})`);

function drawResults() {
  const setting = DATA.results[Number(byId("setting").value)];
  if (!setting) {
    byId("result-note").textContent = "There are no records of trainings in this copy of the page.";
    return;
  }
  byId("result-note").textContent = `${setting.title}. ${seedText(setting.runs)}`;
  const rows = [];
  const styles = [];
  for (const { name, seeds, scores, changes } of setting.runs) {
    rows.push([name, String(seeds), ...Object.keys(SCORE_COLUMNS).map((c) => points(scores[c]))]);
    styles.push("");
    if (!changes) continue;
    rows.push(["– change", "", ...Object.keys(SCORE_COLUMNS).map((c) => changeText(changes[c]))]);
    styles.push("change");
  }
  fillTable(byId("scores"), ["loss", "seeds", ...Object.values(SCORE_COLUMNS)], rows, styles);
  drawChanges(setting.runs.filter(({ changes }) => changes).slice(0, SERIES));
}

/** How much the number of seeds can say. */
function seedText(runs) {
  const fewest = Math.min(...runs.map(({ seeds }) => seeds));
  if (fewest === 1) return "Where there is one seed there is no interval: it decides nothing small.";
  return "In brackets: 95% intervals of the mean change (Student's t over the seeds).";
}

function drawChanges(runs) {
  const at = ({ changes }, threshold) => changes[`ap${threshold}`];
  const all = runs.flatMap((run) => THRESHOLDS.map((t) => at(run, t)));
  const ends = all.flatMap(({ mean, low, high }) => [mean, low ?? mean, high ?? mean, 0]);
  const span = Math.max(...ends) - Math.min(...ends) || 0.01;
  const y = { low: 100 * (Math.min(...ends) - 0.06 * span), high: 100 * (Math.max(...ends) + 0.06 * span) };
  drawChart(byId("chart-change"), {
    label: "Change of AP against the IoU threshold, in points",
    x: { low: 48, high: 97, label: "IoU threshold of the AP, %" },
    y,
    lines: [
      { points: [[48, 0], [97, 0]], style: "plain" },
      ...runs.map((run, i) =>
        ({ points: THRESHOLDS.map((t) => [t, 100 * at(run, t).mean]), style: `s${i}` })),
    ],
    dots: runs.flatMap((run, i) =>
      THRESHOLDS.map((t) => ({ at: [t, 100 * at(run, t).mean], style: `s${i}` }))),
    whiskers: runs.flatMap((run, i) =>
      THRESHOLDS.filter((t) => at(run, t).low !== null).map((t) =>
        ({ at: t, low: 100 * at(run, t).low, high: 100 * at(run, t).high, style: `s${i}` }))),
  });
  byId("change-legend").replaceChildren(
    ...runs.map(({ name }, i) => htmlElement("span", name, { class: `key s${i}` })));
}

byId("setting").append(
  ...DATA.results.map(({ title }, i) => htmlElement("option", title, { value: i })));
byId("setting").addEventListener("change", drawResults);
byId("result-choice").hidden = DATA.results.length < 2;
views.push({ tab: "results", draw: drawResults });
