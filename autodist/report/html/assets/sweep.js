// What a step would take with each of several values: of `simulate --what-if`.

// Of an epoch, which may take days.
function durationText(seconds) {
  if (seconds < 60) return secondsText(seconds);
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

function fastestOf(sweep) {
  return sweep.predictions.reduce((best, each) => (each.samples_per_second > best.samples_per_second ? each : best));
}

function sweepTiles(sweep) {
  if (!sweep) return [];
  const fastest = fastestOf(sweep);
  return [mainTile("fastest", `${sweep.varies}=${fastest.value}`, `of ${countText(sweep.predictions.length)}`),
    tile("samples/s there", countText(Number(fastest.samples_per_second.toPrecision(4))), `${batchText(fastest.samples, sweep)}; a step takes ${secondsText(fastest.step_seconds)}`),
    tile("efficiency there", shareText(fastest.efficiency), `of a replica, against ${sweep.varies}=${sweep.predictions[0].value}`)];
}

function sweepGain(sweep) {
  const first = sweep.predictions[0];
  const fastest = fastestOf(sweep);
  const of = (each) => `${sweep.varies}=${each.value}`;
  return fastest === first ? `No value is faster than ${of(first)}.` :
    `With ${of(fastest)}, ${numberText(Number((fastest.samples_per_second / first.samples_per_second).toPrecision(3)))} times the samples/s of ${of(first)}.`;
}

function sweepLead(sweep) {
  const job = sweep.job ? ` of ${sweep.job}` : "";
  return `Predictions${job}, for each value of ${sweep.varies}. Efficiency: samples/s of a replica against ${sweep.varies}=${sweep.predictions[0].value}.`;
}

function sweepSection(sweep) {
  if (!sweep) return null;
  const rows = sweep.predictions.map((row, number) => ({...row, number}));
  const figure = (title, field, text, shade) => figureColumn(rows, title, field, text, shade);
  const has = (field) => rows.some((row) => row[field] !== undefined);
  const fastest = fastestOf(sweep);
  const columns = [
    {title: sweep.varies, class: "mono", text: (row) => row.value, key: (row) => row.number},
    figure("samples/s", "samples_per_second", (value) => countText(Number(value.toPrecision(4))), "compute"),
    figure("efficiency", "efficiency", shareText, "update"),
    figure("step", "step_seconds", secondsText, "wire"),
    figure("batch", "samples", countText),
    has("peak_bytes") ? figure("peak memory", "peak_bytes", bytesText, "gate") : null,
    has("epoch_seconds") ? figure("epoch", "epoch_seconds", durationText) : null,
    has("cost") ? figure(has("epoch_seconds") ? "cost of an epoch" : "cost of a million samples", "cost", (value) => value.toFixed(2)) : null,
  ].filter(Boolean);
  return element("section", {id: "what-if"}, element("h2", {}, "What if"), element("p", {class: "lead"}, sweepLead(sweep)),
    table("What if", columns, rows, {marked: (row) => row.value === fastest.value}));
}
