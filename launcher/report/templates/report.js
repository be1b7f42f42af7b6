"use strict";
(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const told = document.getElementById("told");
  const tell = (text) => { told.textContent = text; };
  const each = (selector, act) => document.querySelectorAll(selector).forEach(act);

  // -- colours: charts take those of the page
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = () => ({
    "font.color": colour("--text"), "font.family": "system-ui, sans-serif",
    "xaxis.gridcolor": colour("--line"), "yaxis.gridcolor": colour("--line"),
    "hoverlabel.bgcolor": colour("--panel"), "hoverlabel.font.color": colour("--text"), "hoverlabel.bordercolor": colour("--soft"),
  });
  const drawn = new Set();
  const recolour = () => drawn.forEach((chart) => Plotly.relayout(chart, themed()));
  document.getElementById("theme").addEventListener("change", (event) => {
    if (event.target.value) document.documentElement.dataset.theme = event.target.value;
    else delete document.documentElement.dataset.theme;
    recolour();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

  // -- arguments: filter by text and origin
  const filter = (id) => {
    const table = document.getElementById(id);
    const words = document.querySelector(`.filter[data-table="${id}"]`).value.toLowerCase().split(/\s+/).filter(Boolean);
    const origin = document.querySelector(`.origin[data-table="${id}"]`).value;
    let count = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      const shown = (!origin || row.dataset.origin === origin) && words.every((word) => text.includes(word));
      row.hidden = !shown;
      count += shown;
    }
    document.getElementById(`${id}-count`).textContent = `${count} of ${table.tBodies[0].rows.length} arguments`;
  };
  each(".filter", (input) => input.addEventListener("input", () => filter(input.dataset.table)));
  each(".origin", (input) => input.addEventListener("change", () => filter(input.dataset.table)));

  // -- findings: by severity
  each(".severity", (box) => box.addEventListener("change", () => {
    box.closest(".panel").querySelectorAll(`li[data-severity="${box.value}"]`).forEach((item) => { item.hidden = !box.checked; });
  }));

  // -- copy
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed for this page: the older way */ }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };
  each(".copy", (button) => button.addEventListener("click", async () => {
    const text = button.dataset.copy ?? button.parentElement.querySelector("code").textContent;
    const done = await copy(text);
    button.focus();
    button.textContent = done ? "Copied" : "Select and copy";
    tell(done ? "Copied to the clipboard" : "The browser does not allow copying");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }));

  // -- plotly.js is packed into the page
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (char) => char.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);

  const draw = async (chart) => {
    if (drawn.has(chart)) return;
    drawn.add(chart);
    const { data, layout } = figures[chart.id];
    const colours = themed();
    const all = structuredClone(layout);
    all.font = { color: colours["font.color"], family: colours["font.family"] };
    all.xaxis.gridcolor = all.yaxis.gridcolor = colours["xaxis.gridcolor"];
    all.hoverlabel = { ...all.hoverlabel, bgcolor: colours["hoverlabel.bgcolor"], bordercolor: colours["hoverlabel.bordercolor"], font: { color: colours["font.color"] } };
    await Plotly.newPlot(chart, data, all, { displayModeBar: false, responsive: true });
    if (layout.meta) devices(chart, layout.meta);
    chart.dataset.drawn = "yes";
  };

  // -- devices: those that work together stand out
  const devices = (chart, meta) => {
    const points = chart.data[0].customdata;
    const fit = () => {
      const width = chart._fullLayout._size.w / meta.columns;
      Plotly.restyle(chart, { "marker.size": Math.max(6, Math.min(28, 0.86 * width)), "textfont.size": width < 20 ? 7 : 10 });
    };
    fit();
    addEventListener("resize", fit);
    const axis = document.querySelector(`.axis[data-chart="${chart.id}"]`);
    chart.on("plotly_hover", ({ points: [point] }) => {
      const group = point.customdata[axis.value];
      const opacity = points.map((each) => (each[axis.value] === group ? 1 : 0.25));
      Plotly.restyle(chart, { "marker.opacity": [opacity] });
    });
    chart.on("plotly_unhover", () => Plotly.restyle(chart, { "marker.opacity": 1 }));
  };

  // -- timeline: zoom by buttons, so that it needs no mouse
  each("[data-zoom]", (button) => button.addEventListener("click", () => {
    const chart = document.getElementById(button.dataset.chart);
    if (!drawn.has(chart)) return;
    const [first, last] = figures[chart.id].layout.xaxis.range;
    const [start, end] = chart._fullLayout.xaxis.range;
    const middle = (start + end) / 2, size = end - start;
    const wide = { in: size / 2, out: size * 2, left: size, right: size, all: last - first }[button.dataset.zoom];
    const shift = { left: -size / 2, right: size / 2 }[button.dataset.zoom] ?? 0;
    const from = Math.max(first, Math.min(middle + shift - wide / 2, last - wide));
    const range = button.dataset.zoom === "all" ? [first, last] : [from, Math.min(last, from + wide)];
    Plotly.relayout(chart, { "xaxis.range": range });
    tell(`Timeline from ${range[0].toFixed(3)} to ${range[1].toFixed(3)} seconds`);
  }));

  // Those in sight first: a report of many jobs is there at once.
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }), { rootMargin: "600px" });
  each(".chart", (chart) => seen.observe(chart));
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    each(".chart", draw);
    recolour();
  });
  addEventListener("afterprint", () => {
    const chosen = document.getElementById("theme").value;
    if (chosen) document.documentElement.dataset.theme = chosen; else delete document.documentElement.dataset.theme;
    recolour();
  });
  document.documentElement.dataset.ready = "yes";
})();
