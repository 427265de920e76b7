
// Loss, throughput and time per step over the run, drawn by uPlot.

const CHARTS = [
  {title: "Loss", series: [["loss", "loss", "update"]]},
  {title: "Samples per second", series: [["samples_per_second", "samples/s", "compute"]]},
  {title: "Time per step of the chief", series: [["step_seconds", "step", "wire"], ["computing_seconds", "computing", "compute"], ["waiting_seconds", "waiting", "gate"]], text: secondsText},
];

function chartsOf(run) {
  const named = (name) => run.columns.find((column) => column.name === name);
  const charts = CHARTS.map((chart) => ({...chart, series: chart.series.filter(([name]) => named(name))}))
    .filter((chart) => chart.series.length > 0);
  const known = new Set(CHARTS.flatMap((chart) => chart.series.map(([name]) => name)));
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

function drawChart(run, chart, sync) {
  const text = chart.text || numberText;
  const host = element("div", {class: "chart"}, element("h3", {}, chart.title));
  const named = (name) => run.columns.find((column) => column.name === name).values;
  const options = {
    width: 420, height: 230, cursor: {sync: {key: sync}, drag: {x: true, y: false}},
    scales: {x: {time: false}}, axes: [axis(countText), axis(text)],
    series: [{label: "step", value: (_, value) => (value === null ? "–" : countText(value))},
      ...chart.series.map(([, label, name]) => ({
        label, stroke: () => colour(name), width: 1.5, points: {show: run.steps.length < 3},
        value: (_, value) => (value === null || value === undefined ? "–" : text(value)),
      }))],
  };
  const plot = new uPlot(options, [run.steps, ...chart.series.map(([name]) => named(name))], host);
  const reset = element("button", {type: "button", onclick: () => plot.setData(plot.data)}, "Whole run");
  host.append(element("div", {class: "tools"}, reset));
  const fit = () => plot.setSize({width: Math.max(220, host.clientWidth), height: 230});
  new ResizeObserver(fit).observe(host);
  redrawn.push(() => plot.redraw(false, true));
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

function runSection(run) {
  if (!run || run.steps.length === 0) return null;
  const kept = run.steps.length < run.steps_in_log ?
    ` Of ${countText(run.steps_in_log)} steps, ${countText(run.steps.length)} are in this page: the least and the most of every figure in each stretch, so no spike is lost.` :
    ` All ${countText(run.steps.length)} steps of the log.`;
  const again = run.overwritten_steps > 0 ? ` ${plural(run.overwritten_steps, "step")} ran again after a resume; the later run stands.` : "";
  return element("section", {id: "run"}, element("h2", {}, "The run"),
    element("p", {class: "lead"}, `Drag across a chart to zoom in.${kept}${again}`),
    element("div", {class: "charts"}, chartsOf(run).map((chart) => drawChart(run, chart, "run"))),
    element("div", {style: {marginTop: "14px"}}, runTable(run)));
}
