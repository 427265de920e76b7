// What a step would take with each of several values: of `simulate --what-if`.

function sweepLead(sweep) {
  const first = sweep.predictions[0];
  const fastest = sweep.predictions.reduce((best, each) => (each.samples_per_second > best.samples_per_second ? each : best));
  const of = (each) => `${sweep.varies}=${each.value}`;
  const gain = fastest === first ? `No value is faster than ${of(first)}.` :
    `The fastest is ${of(fastest)}: ${numberText(Number((fastest.samples_per_second / first.samples_per_second).toPrecision(3)))} times the samples/s of ${of(first)}.`;
  return `Predicted, one ${sweep.varies} after the other. ${gain} Efficiency: samples/s of a replica against ${of(first)}.`;
}

function sweepSection(sweep) {
  if (!sweep) return null;
  const rows = sweep.predictions.map((row, number) => ({...row, number}));
  const most = (field) => Math.max(...rows.map((row) => row[field] || 0));
  const figure = (title, field, text, shade) => ({title, right: true, key: (row) => row[field],
    text: (row) => (row[field] === undefined ? "–" : text(row[field])),
    node: (row) => (row[field] === undefined ? "–" : shade ? gauge(text(row[field]), row[field], most(field), shade) : text(row[field]))});
  const has = (field) => rows.some((row) => row[field] !== undefined);
  const fastest = most("samples_per_second");
  const columns = [
    {title: sweep.varies, class: "mono", text: (row) => row.value, key: (row) => row.number},
    figure("samples/s", "samples_per_second", (value) => countText(Number(value.toPrecision(4))), "compute"),
    figure("efficiency", "efficiency", shareText, "update"),
    figure("step", "step_seconds", secondsText, "wire"),
    figure("batch", "samples", countText),
    has("peak_bytes") ? figure("peak memory", "peak_bytes", bytesText, "gate") : null,
    has("epoch_seconds") ? figure("epoch", "epoch_seconds", secondsText) : null,
    has("cost") ? figure(has("epoch_seconds") ? "cost of an epoch" : "cost of a million samples", "cost", (value) => value.toFixed(2)) : null,
  ].filter(Boolean);
  return element("section", {id: "what-if"}, element("h2", {}, "What if"), element("p", {class: "lead"}, sweepLead(sweep)),
    table("What if", columns, rows, {marked: (row) => row.samples_per_second === fastest}));
}
