"use strict";
for (const chart of document.querySelectorAll("figure.chart")) {
  const data = JSON.parse(chart.querySelector("script").textContent);
  const svg = chart.querySelector("svg"), reading = chart.querySelector(".reading");
  const keys = [...chart.querySelectorAll(".key")];
  const places = new Map();  /* from the x of a value to where it is in the drawing */
  for (const line of data.series) for (const point of line.points) places.set(point.x, point.at[0]);
  const values = [...places.keys()].sort((a, b) => a - b);
  let chosen = null;

  const make = (name, attributes) => {
    const made = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const marks = make("g", { class: "marks" });
  svg.append(marks);

  const show = index => {
    chosen = index;
    marks.replaceChildren();
    keys.forEach(key => { key.dataset.value = ""; });
    reading.textContent = "";
    if (index === null) return;
    const x = values[index], across = places.get(x);
    const anchor = across > 300 ? "end" : across < 100 ? "start" : "middle";
    const at = make("text", { class: "at", x: across, y: 9, "text-anchor": anchor });
    at.textContent = `${data.label} ${x}`;
    marks.append(make("line", { class: "cursor", x1: across, x2: across, y1: 14, y2: 210 }), at);
    const says = [];
    data.series.forEach((line, number) => {
      const point = line.points.find(one => one.x === x);
      if (!point) return;
      const look = `ring ${line.look}`;
      marks.append(make("circle", { class: look, cx: point.at[0], cy: point.at[1], r: 5 }));
      keys[number].dataset.value = point.says;
      says.push(`${line.name} ${point.says}`);
    });
    reading.textContent = `${at.textContent}: ${says.join("; ")}`;
  };
  const nearest = event => {
    const box = svg.getBoundingClientRect();
    const across = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    let best = 0;
    values.forEach((x, index) => {
      if (Math.abs(places.get(x) - across) < Math.abs(places.get(values[best]) - across)) best = index;
    });
    return best;
  };
  svg.addEventListener("pointermove", event => show(nearest(event)));
  svg.addEventListener("pointerdown", event => show(nearest(event)));
  svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") show(null); });
  chart.addEventListener("keydown", event => {
    const last = values.length - 1, now = chosen ?? (event.key === "ArrowLeft" ? values.length : -1);
    const next = {
      ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last, Escape: null,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    show(next);
  });
}
