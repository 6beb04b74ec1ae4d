"use strict";
/* The timeline that zooms, drawn by uPlot over the data that the page carries; without it the drawing stays. */
(() => {
  const island = document.getElementById("timeline-data");
  const figure = document.getElementById("timeline-chart");
  if (!island || !figure || typeof uPlot === "undefined") return;
  const data = JSON.parse(island.textContent);
  const GIB = 2 ** 30;
  const size = (bytes) => {
    const [unit, name] = [[GIB, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([one]) => bytes >= one) ?? [1, "B"];
    return unit === 1 ? `${bytes} B` : `${(bytes / unit).toFixed(2)} ${name}`;
  };
  const steps = [1, 2 ** 10, 2 ** 20, GIB].flatMap((unit) => [1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * unit));
  const tick = (bytes) => {
    const [unit, name] = [[GIB, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]].find(([one]) => bytes >= one) ?? [1, "B"];
    return `${Number((bytes / unit).toPrecision(4))} ${name}`;
  };
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const below = data.events.map(() => 0);
  const stacked = data.series.map((series) => series.bytes.map((bytes, at) => (below[at] += bytes)));
  const order = data.series.map((_, at) => data.series.length - 1 - at);  // the highest first: each covers what is below
  const columns = [data.events, ...order.map((at) => stacked[at]), data.reserved];
  const peakAt = data.events.indexOf(data.peak);
  const phaseAt = (event) => data.phases.find(([, , begin, end]) => begin <= event && event < end);

  const holder = document.createElement("div");
  holder.className = "zoom";
  const tools = document.createElement("p");
  tools.className = "tools";
  const told = document.createElement("span");
  told.setAttribute("role", "status");
  const stepped = uPlot.paths.stepped({ align: 1 });

  const marks = (chart) => {
    const { ctx, bbox } = chart;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * ratio}px sans-serif`;
    ctx.textBaseline = "top";
    ctx.setLineDash([]);
    ctx.textAlign = "left";
    const say = (words, x, y) => {  // readable over any colour
      ctx.strokeStyle = style("--back");
      ctx.lineWidth = 4 * ratio;
      ctx.lineJoin = "round";
      ctx.strokeText(words, x, y);
      ctx.fillText(words, x, y);
    };
    for (const [step, name, begin, end] of data.phases) {
      const x = chart.valToPos(begin, "x", true);
      const width = chart.valToPos(end, "x", true) - x;
      ctx.strokeStyle = style("--line");
      ctx.lineWidth = ratio;
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      ctx.fillStyle = style("--text");
      const words = [step ? `step ${step}, ${name}` : name, name].find((one) => ctx.measureText(one).width < width - 8 * ratio);
      if (words) say(words, x + 4 * ratio, bbox.top + 2 * ratio);
    }
    ctx.fillStyle = style("--text");
    ctx.font = `600 ${12 * ratio}px sans-serif`;
    const line = (x0, y0, x1, y1) => {
      ctx.strokeStyle = style("--mark");
      ctx.lineWidth = 2 * ratio;
      ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke();
    };
    const beside = (words, x, away, y) => {  // to the right of a place, or to its left where the chart ends
      const width = ctx.measureText(words).width;
      say(words, x + away + width > bbox.left + bbox.width ? x - away - width : x + away, y);
    };
    const inside = (x) => x >= bbox.left && x <= bbox.left + bbox.width;
    const limit = chart.valToPos(data.limit, "y", true);
    const can = `PyTorch can have ${size(data.limit)}`;
    if (limit < bbox.top) say(`${can}: above this chart`, bbox.left + 8 * ratio, bbox.top + 18 * ratio);
    else {
      line(bbox.left, limit, bbox.left + bbox.width, limit);
      say(can, bbox.left + 8 * ratio, limit + 4 * ratio);
    }
    const end = data.ranOut === null ? NaN : chart.valToPos(data.ranOut, "x", true);
    if (inside(end)) {
      line(end, bbox.top + bbox.height, end, bbox.top);
      beside("\u2717 out of memory", end, 8 * ratio, bbox.top + bbox.height - 20 * ratio);
    }
    const most = stacked.at(-1)[peakAt];
    const highest = chart.valToPos(data.peak, "x", true);
    if (inside(highest)) beside(`peak ${size(most)}`, highest, 16 * ratio, chart.valToPos(most, "y", true) - 5 * ratio);
    ctx.restore();
  };

  const instant = (at) => {
    const phase = phaseAt(data.events[at]);
    const parts = data.series.map((series) => [series.name, series.bytes[at]]).filter(([, bytes]) => bytes > 0);
    const held = parts.map(([name, bytes]) => `${name} ${size(bytes)}`).join(", ");
    return `event ${data.events[at].toLocaleString("en")}${phase ? `, step ${phase[0]}, ${phase[1]}` : ""}: `
      + `${held}; reserved ${size(data.reserved[at])}`;
  };

  const peak = document.createElement("button");
  peak.type = "button";
  peak.id = "peak";
  peak.className = "peak-dot";
  peak.setAttribute("aria-label", `The peak, ${size(stacked.at(-1)[peakAt])}: show the tensors alive then`);
  peak.addEventListener("click", () => document.dispatchEvent(new CustomEvent("memdoctor:peak")));

  const above = (high) => data.limit > 1.08 * high ? 1.25 : 1.08;  // room for words about a limit that is not drawn
  let chart = null;
  const draw = () => {
    const text = style("--text");
    const range = chart ? [chart.scales.x.min, chart.scales.x.max] : [0, data.of];
    if (chart) chart.destroy();
    const axis = { stroke: text, grid: { stroke: style("--line"), width: 0.5 }, ticks: { stroke: style("--line") } };
    chart = new uPlot({
      width: figure.clientWidth,
      height: figure.clientWidth < 640 ? 280 : 400,
      legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false, setScale: true } },
      scales: { x: { time: false, range: (_, low, high) => [low, high] }, y: { range: (_, low, high) => [0, above(high) * Math.max(high, 1)] } },
      axes: [{ ...axis, label: "event", labelSize: 18, size: 40 }, { ...axis, size: 74, incrs: steps, values: (_, ticks) => ticks.map(tick) }],
      series: [
        {},
        ...order.map((at) => ({
          label: data.series[at].name, stroke: style("--back"), width: 0.3, fill: data.series[at].colour,
          paths: stepped, points: { show: false },
        })),
        { label: "reserved", stroke: text, width: 1.5, dash: [6, 3], paths: stepped, points: { show: false } },
      ],
      hooks: {
        draw: [marks, (self) => {
          const x = self.valToPos(data.peak, "x");
          peak.hidden = x < 0 || x > self.over.clientWidth;
          peak.style.left = `${x}px`;
          peak.style.top = `${self.valToPos(stacked.at(-1)[peakAt], "y")}px`;
        }],
        setCursor: [(self) => { if (self.cursor.idx !== null && self.cursor.left >= 0) told.textContent = instant(self.cursor.idx); }],
      },
    }, columns, holder);
    chart.over.append(peak);
    chart.setScale("x", { min: range[0], max: range[1] });
  };

  const move = (change) => () => {
    const { min, max } = chart.scales.x;
    const [low, high] = change(min, max);
    chart.setScale("x", { min: Math.max(0, low), max: Math.min(data.of, Math.max(high, low + 10)) });
  };
  const buttons = [
    ["zoom in", (low, high) => [low + (high - low) / 4, high - (high - low) / 4]],
    ["zoom out", (low, high) => [low - (high - low) / 2, high + (high - low) / 2]],
    ["left", (low, high) => { const by = Math.min(low, (high - low) / 2); return [low - by, high - by]; }],
    ["right", (low, high) => { const by = Math.min(data.of - high, (high - low) / 2); return [low + by, high + by]; }],
    ["all", () => [0, data.of]],
  ];
  for (const [name, change] of buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", move(change));
    tools.append(button, " ");
  }
  const legend = document.createElement("p");
  legend.className = "aside";
  legend.textContent = `${data.events.length.toLocaleString("en")} of ${data.of.toLocaleString("en")} events are drawn; drag to zoom, double click for all.`;
  told.textContent = instant(peakAt);
  figure.replaceChildren(tools, holder, told, legend);
  draw();
  new ResizeObserver(() => { if (chart.width !== figure.clientWidth) draw(); }).observe(figure);
  document.addEventListener("memdoctor:theme", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
