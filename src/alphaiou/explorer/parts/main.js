// The controls above the views, and the tabs between them.

const tabs = [...document.querySelectorAll("[role=tab]")];

function drawControls() {
  byId("kind").value = state.kind;
  const sliders = {
    alpha: [state.alpha, String(state.alpha)],
    "penalty-alpha": [state.penaltyAlpha, String(state.penaltyAlpha)],
    gain: [Math.log2(state.gain), `×${+state.gain.toFixed(2)}`],
  };
  for (const [id, [value, text]] of Object.entries(sliders)) {
    byId(id).value = value;
    byId(id).setAttribute("aria-valuetext", text);
    byId(`${id}-value`).textContent = text;
  }
  byId("controls").classList.toggle("tied", state.tied);
  byId("tied").checked = state.tied;
  byId("oriented").checked = state.oriented;
  byId("penalty-alpha").disabled = state.tied;
}

function showTab(chosen, { focus = false } = {}) {
  for (const tab of tabs) {
    const isChosen = tab === chosen;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !isChosen;
  }
  if (focus) chosen.focus();
  redrawSoon();
}

/** Arrow keys, Home and End move between tabs. */
function onTabKey(event) {
  const at = tabs.indexOf(event.currentTarget);
  const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  showTab(tabs[(next + tabs.length) % tabs.length], { focus: true });
}

/** What belongs to oriented boxes is hidden for axis-aligned ones. */
modes.push(() => {
  byId("kind").replaceChildren(...Object.keys(kindsNow()).map((kind) =>
    htmlElement("option", DATA.kinds[kind].title, { value: kind })));
  for (const element of document.querySelectorAll("[data-oriented]")) {
    element.hidden = !state.oriented;
  }
});
byId("oriented").addEventListener("change", (event) => change({ oriented: event.target.checked }));
byId("kind").addEventListener("change", (event) => change({ kind: event.target.value }));
byId("alpha").addEventListener("input", (event) => change({ alpha: Number(event.target.value) }));
byId("penalty-alpha").addEventListener("input", (event) =>
  change({ penaltyAlpha: Number(event.target.value) }));
byId("gain").addEventListener("input", (event) =>
  change({ gain: 2 ** Number(event.target.value) }));
byId("tied").addEventListener("change", (event) => change({ tied: event.target.checked }));
byId("reset").addEventListener("click", () => change(structuredClone(START)));
for (const tab of tabs) {
  tab.addEventListener("click", () => showTab(tab));
  tab.addEventListener("keydown", onTabKey);
}
views.unshift({ tab: null, draw: drawControls });
addEventListener("resize", redrawSoon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawSoon);
showTab(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) ?? tabs[0]);
