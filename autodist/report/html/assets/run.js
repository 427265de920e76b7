
// Loss, throughput and time per step over the run, drawn by uPlot.

const CHARTS = [
  {title: "Loss", series: [["loss", "loss", "update"]]},
  {title: "Samples per second", of: batchOf, series: [["samples_per_second", "samples/s", "compute"]]},
  {title: "Time per step of the chief", series: [["step_seconds", "step", "wire"], ["computing_seconds", "computing", "compute"], ["waiting_seconds", "waiting", "gate"]], text: secondsText},
];

function lostRanksOf(run) {
  return (run && run.losses) || [];
}

function chartsOf(run) {
  const named = (name) => run.columns.find((column) => column.name === name);
  const charts = CHARTS.map((chart) => ({...chart, series: chart.series.filter(([name]) => named(name))}))
    .filter((chart) => chart.series.length > 0);
  const known = new Set(["samples", ...CHARTS.flatMap((chart) => chart.series.map(([name]) => name))]);  // samples: in a title
  for (const column of run.columns) {
    if (!known.has(column.name)) charts.push({title: column.name, series: [[column.name, column.name, "wire"]]});
  }
  return charts;
}

function axis(text) {
  return {
    stroke: () => colour("soft"), grid: {stroke: () => colour("faint"), width: 1},
    ticks: {stroke: () => colour("line"), width: 1}, font: "12px system-ui, sans-serif",
    values: (_, splits) => splits.map(text), size: text === countText ? 34 : 62,
  };
}

// What a step of the loop consisted of, in the order of the bar; the rest is what the loop does
// around the step.
const STEP_PARTS = [["computing_seconds", "compute", "computing"], ["waiting_seconds", "gate", "waiting for other ranks"],
  [null, "between", "around it (batches, checkpoints, logs)"]];

// The step that is chosen in the charts, and what is known of it.
class StepChoice {
  constructor(run) {
    this.run = run;
    this.at = run.steps.length - 1;
    this.plots = [];
    this.title = element("h3", {});
    this.known = element("div", {});
    const turn = (text, label, by) =>
      element("button", {type: "button", "aria-label": label, onclick: () => this.choose(this.at + by)}, text);
    this.block = element("div", {class: "step"}, element("div", {class: "head"}, this.title,
      element("div", {class: "turn"}, turn("‹", "Step before in the charts", -1), turn("›", "Step after in the charts", 1))), this.known);
  }

  // A chart in which a click chooses a step, and so do the keys of a slider.
  add(plot, title) {
    this.plots.push(plot);
    const [first, last] = [this.run.steps[0], this.run.steps[this.run.steps.length - 1]];
    plot.ctx.canvas.setAttribute("role", "img");
    plot.ctx.canvas.setAttribute("aria-label", `${title}, steps ${countText(first)} to ${countText(last)}`);
    for (const head of plot.root.querySelectorAll(".u-legend th")) head.setAttribute("scope", "row");
    const slider = {role: "slider", tabindex: "0", "aria-label": `${title}: step`, "aria-valuemin": first, "aria-valuemax": last};
    for (const [name, value] of Object.entries(slider)) plot.over.setAttribute(name, value);
    plot.over.addEventListener("click", () => {
      if (plot.cursor.idx !== null) this.choose(plot.cursor.idx);
    });
    plot.over.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.round(this.run.steps.length / 20));
      const by = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page, Home: -Infinity, End: Infinity}[event.key];
      if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.choose(this.at + by);
    });
  }

  value(name) {
    const column = this.run.columns.find((each) => each.name === name);
    return column ? column.values[this.at] : undefined;
  }

  headline() {
    const plan = this.run.plans[this.run.plan_of[this.at]];
    const seconds = this.value("step_seconds");
    return `Step ${countText(this.run.steps[this.at])} ` + (plan ? `ran under the plan ${plan}` : "ran under a plan that the log does not name") +
      (seconds > 0 ? ` and took ${secondsText(seconds)}` : "");
  }

  // Each with its seconds, where they are known.
  parts() {
    const whole = this.value("step_seconds");
    const known = STEP_PARTS.filter(([field]) => field && this.value(field) >= 0)
      .map(([field, shade, text]) => ({shade, text, seconds: this.value(field)}));
    const rest = whole - known.reduce((sum, part) => sum + part.seconds, 0);
    if (known.length > 0 && rest > 0) known.push({shade: STEP_PARTS[2][1], text: STEP_PARTS[2][2], seconds: rest});
    return known;
  }

  choose(at) {
    this.at = Math.min(this.run.steps.length - 1, Math.max(0, at));
    this.show();
    for (const plot of this.plots) plot.redraw(false, false);
  }

  show() {
    const parts = this.parts();
    const whole = parts.reduce((sum, part) => sum + part.seconds, 0);
    const said = parts.map((part) => `${part.text} ${secondsText(part.seconds)}`).join(", ");
    const times = ["step_seconds", ...STEP_PARTS.map(([field]) => field)];
    const others = this.run.columns.filter((column) => !times.includes(column.name))
      .map((column) => `${column.name.replaceAll("_", " ")} ${numberText(column.values[this.at])}`).join(", ");
    const visible = showsInTimeline(this.run.steps[this.at]);
    this.title.textContent = this.headline();
    this.known.replaceChildren(...[
      whole > 0 ? element("div", {class: "bar", role: "img", "aria-label": said, title: said}, parts.map((part) =>
        element("i", {style: {width: `${100 * part.seconds / whole}%`, background: `var(--${part.shade})`}}))) : null,
      whole > 0 ? legend(parts.map((part) => [part.shade, `${part.text} ${secondsText(part.seconds)}, ${shareText(part.seconds / whole)}`])) : null,
      others ? element("p", {class: "soft"}, `${others}.`) : null,
      visible ? element("button", {type: "button", onclick: visible}, "Show it in the timeline") : null].filter(Boolean));
    for (const plot of this.plots) {
      plot.over.setAttribute("aria-valuenow", this.run.steps[this.at]);
      plot.over.setAttribute("aria-valuetext", `${this.headline()}${said ? `: ${said}` : ""}`);
    }
  }

  // A line through the chosen step, and dashed ones where the job trained again.
  mark(plot) {
    for (const loss of lostRanksOf(this.run)) this.line(plot, loss.step, colour("bad"), [4, 4]);
    this.line(plot, this.run.steps[this.at], colour("text"), []);
  }

  line(plot, step, shade, dashes) {
    const x = Math.round(plot.valToPos(step, "x", true));
    const {left, top, width, height} = plot.bbox;
    if (x < left || x > left + width) return;
    const pixels = window.devicePixelRatio || 1;
    const {ctx} = plot;
    ctx.save();
    ctx.strokeStyle = shade;
    ctx.lineWidth = pixels;
    ctx.setLineDash(dashes.map((each) => each * pixels));
    ctx.beginPath();
    ctx.moveTo(Math.min(x, left + width - 1) + pixels / 2, top);
    ctx.lineTo(Math.min(x, left + width - 1) + pixels / 2, top + height);
    ctx.stroke();
    ctx.restore();
  }
}

function drawChart(run, plan, chart, choice) {
  const text = chart.text || numberText;
  const batch = chart.of ? chart.of(run) : 0;
  const host = element("div", {class: "chart"}, element("h3", {}, batch > 0 ? `${chart.title}, ${batchText(batch, plan)}` : chart.title));
  const named = (name) => run.columns.find((column) => column.name === name).values;
  const options = {
    width: 420, height: 230, cursor: {sync: {key: "run"}, drag: {x: true, y: false}},
    hooks: {draw: [(each) => choice.mark(each)]},
    scales: {x: {time: false}}, axes: [axis(countText), axis(text)],
    series: [{label: "step", value: (_, value) => (value === null ? "–" : countText(value))},
      ...chart.series.map(([, label, name]) => ({
        label, stroke: () => colour(name), width: 1.5, points: {show: run.steps.length < 3},
        value: (_, value) => (value === null || value === undefined ? "–" : text(value)),
      }))],
  };
  const plot = new uPlot(options, [run.steps, ...chart.series.map(([name]) => named(name))], host);
  choice.add(plot, chart.title);
  const reset = element("button", {type: "button", "aria-label": `${chart.title}: whole run`, onclick: () => plot.setData(plot.data)}, "Whole run");
  host.append(element("div", {class: "tools"}, reset));
  const fit = () => plot.setSize({width: Math.max(220, host.clientWidth), height: 230});
  new ResizeObserver(fit).observe(host);
  const markers = [...plot.root.querySelectorAll(".u-marker")].slice(-chart.series.length);
  redrawn.push(() => {
    markers.forEach((marker, i) => { marker.style.borderColor = colour(chart.series[i][2]); });
    plot.redraw(false, true);
  });
  return host;
}

function runTable(run) {
  const rows = run.columns.map((column) => {
    const numbers = column.values.filter((value) => value !== null);
    return {name: column.name, first: column.values[0], last: column.values[column.values.length - 1],
      least: numbers.reduce((a, b) => Math.min(a, b), Infinity), most: numbers.reduce((a, b) => Math.max(a, b), -Infinity)};
  });
  const figure = (field) => ({title: field, right: true, text: (row) => (Number.isFinite(row[field]) ? numberText(row[field]) : "not finite"),
    key: (row) => row[field]});
  return table("Figures of the run", [{title: "figure", class: "mono", text: (row) => row.name},
    figure("first"), figure("last"), figure("least"), figure("most")], rows);
}

function runSection(run, plan) {
  if (!run || run.steps.length === 0) return null;
  const kept = run.steps.length < run.steps_in_log ?
    ` Of ${countText(run.steps_in_log)} steps, ${countText(run.steps.length)} are in this page: the least and the most of every figure in each stretch, so no spike is lost.` :
    ` All ${countText(run.steps.length)} steps of the log.`;
  const again = run.overwritten_steps > 0 ? ` ${plural(run.overwritten_steps, "step")} ran again after a resume; the later run stands.` : "";
  const lost = lostRanksOf(run).map((each) => element("li", {}, `Training again after ${secondsText(each.away_seconds)}, from step ` +
    countText(each.step) + (each.steps_again > 0 ? `; ${plural(each.steps_again, "step")} done once more.` : ".")));
  const choice = new StepChoice(run);
  const charts = chartsOf(run).map((chart) => drawChart(run, plan, chart, choice));
  choice.show();
  return element("section", {id: "run"}, element("h2", {}, "The run"),
    element("p", {class: "lead"}, element("span", {class: "screen"}, "Click a step in a chart, or move with the arrow keys inside of one: below the charts stands what it was. Drag across a chart to zoom in."),
      `${kept}${again}`),
    lost.length > 0 ? element("div", {class: "lead"}, "Ranks were lost on the way, and all were started again (dashed in the charts):", element("ul", {}, lost)) : null,
    element("div", {class: "charts"}, charts), choice.block, runTable(run));
}
