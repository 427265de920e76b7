
// The first screen: what the step was bounded by, the figures, and where the time went by rank.

const PARTS = [
  ["computing_seconds", "compute", "computing"],
  ["waiting_seconds", "gate", "waiting for variables"],
  ["handing_over_seconds", "contribute", "handing gradients over"],
  ["between_seconds", "between", "between ops"],
];

function rankStep(rank) {
  return PARTS.reduce((sum, [field]) => sum + rank[field], 0);
}

function meanOf(ranks, field) {
  return ranks.reduce((sum, rank) => sum + rank[field], 0) / Math.max(1, ranks.length);
}

// The one that the verdict is about: measured where there is one.
function mainTimeline(data) {
  return data.timelines.find((each) => !each.predicted && each.verdict) ||
    data.timelines.find((each) => each.verdict) || null;
}

// `title` is said where the pointer is.
function tile(name, value, note, title) {
  return element("div", {class: "tile", ...(title ? {title} : {})}, element("div", {class: "name"}, name),
    element("div", {class: "value"}, value), element("div", {class: "note"}, note || ""));
}

// The figure that the page is about.
function mainTile(name, value, note) {
  const shown = tile(name, value, note);
  shown.classList.add("main");
  return shown;
}

function lastOf(run, name) {
  const column = run && run.columns.find((each) => each.name === name);
  return column && column.values.length > 0 ? column.values[column.values.length - 1] : undefined;
}

function timelineTiles(timeline) {
  const tiles = [];
  const kind = timeline.predicted ? "predicted" : "measured";
  if (timeline.steps_counted > 0) {
    tiles.push((timeline.predicted ? tile : mainTile)(`step, ${kind}`, secondsText(timeline.median_seconds),
      `median of ${plural(timeline.steps_counted, "step")}`));
  }
  return tiles;
}

function shareTiles(timeline) {
  const step = meanOf(timeline.ranks.map((rank) => ({step: rankStep(rank)})), "step");
  if (!(step > 0)) return [];
  return [
    tile("computing", shareText(meanOf(timeline.ranks, "computing_seconds") / step), `of a step; mean of ranks and of ${plural(timeline.steps_counted, "traced step")}`),
    tile("waiting", shareText(meanOf(timeline.ranks, "waiting_seconds") / step), "for variables, of the same steps"),
  ];
}

function isMeasured(data) {
  return Boolean(data.run && data.run.median_step_seconds) || data.timelines.some((each) => !each.predicted && each.steps_counted > 0);
}

function predictionTiles(data) {
  const prediction = data.prediction;
  if (!prediction) return [];
  const shown = isMeasured(data) ? tile : mainTile;
  const tiles = [shown("step, predicted", secondsText(prediction.step_seconds), "steady state, simulated"),
    tile("the plan at best", secondsText(prediction.bound_seconds), prediction.bound_reason,
      "The bound of the plan: with the same owners and routes no order of sending makes a step shorter.")];
  const fullest = prediction.memory.reduce((most, rank, i) => (memoryOf(rank) > most.used ?
    {used: memoryOf(rank), limit: rank.capacity_bytes, rank: i} : most), {used: 0, limit: 0, rank: 0});
  if (fullest.used > 0) {
    tiles.push(tile("memory, predicted", bytesText(fullest.used),
      `${fullest.limit > 0 ? `of ${bytesText(fullest.limit)} ` : ""}at rank ${fullest.rank}, the fullest`));
  }
  return tiles;
}

function memoryOf(rank) {
  return rank.parts.reduce((sum, part) => sum + part.bytes, 0);
}

// How many samples most kept steps had (the last one of an epoch may have fewer); 0 where that is not known.
function batchOf(run) {
  const {values} = run.columns.find((each) => each.name === "samples") || {values: []};
  const counts = new Map();
  for (const size of values) counts.set(size, (counts.get(size) || 0) + 1);
  const [size, count] = [...counts].reduce((most, each) => (each[1] > most[1] ? each : most), [0, 0]);
  return 2 * count > values.length ? size : 0;
}

// What a rate is of. The plan is the job's, where the page has it.
function batchText(samples, plan) {
  const sequences = plan && plan.sequence_length ? ` sequences of ${countText(plan.sequence_length)}` : "";
  return `in batches of ${countText(samples)}${sequences}${plan && plan.precision ? `, ${plan.precision}` : ""}`;
}

function runTiles(run, plan) {
  const tiles = [];
  const rate = run && run.median_samples_per_second;
  if (rate) {
    const of = "median of the run";
    if (run.median_step_seconds) tiles.push(mainTile("step, measured", secondsText(run.median_step_seconds), of));
    const batch = batchOf(run);
    tiles.push(tile("samples/s", countText(Math.round(rate)), batch > 0 ? `${of}, ${batchText(batch, plan)}` : of));
  }
  const loss = lastOf(run, "loss");
  if (loss !== undefined) {
    tiles.push(tile("loss", numberText(loss), `after ${plural(run.steps[run.steps.length - 1] + 1, "step")}`));
  }
  const losses = lostRanksOf(run);
  if (losses.length > 0) {
    const away = losses.reduce((sum, each) => sum + each.away_seconds, 0);
    const again = losses.reduce((sum, each) => sum + each.steps_again, 0);
    tiles.push(tile("lost ranks", countText(losses.length), `${secondsText(away)} until training again, ${plural(again, "step")} done once more`));
  }
  return tiles;
}

function planTiles(plan) {
  if (!plan) return [];
  const tiles = [];
  if (plan.variable_bytes !== undefined) {
    tiles.push(tile("variables", countText(plan.variable_count), bytesText(plan.variable_bytes)));
  }
  if (plan.ranks.length > 0) {
    const busiest = Math.max(...plan.ranks.map((rank) => rank.sent_bytes + rank.received_bytes));
    tiles.push(tile("busiest rank", bytesText(busiest), "sent and received per step"));
    tiles.push(tile("ranks", countText(plan.ranks.length),
      `${plural(plan.slices, "slice")}, ${plural(plan.collectives, "library call")}`,
      "A slice is a piece of a variable that is sent, added up and updated by itself; a library call is an all-reduce of Gloo or NCCL."));
  } else if (plan.peak_bytes !== undefined) {
    tiles.push(tile("peak memory", bytesText(plan.peak_bytes),
      `of the step with ${plural(plan.example_batch_samples, "sample")}`));
  }
  return tiles;
}

// Where the prediction is off by more than a tenth: in words, to end a headline with.
function predictionError(data) {
  const traced = (predicted) => {
    const timeline = data.timelines.find((each) => each.predicted === predicted && each.steps_counted > 0);
    return timeline && timeline.median_seconds;
  };
  const measured = (data.run && data.run.median_step_seconds) || traced(false);
  const predicted = data.prediction ? data.prediction.step_seconds : traced(true);
  if (!(measured > 0) || !(predicted > 0)) return "";
  const ratio = measured / predicted;
  if (Math.abs(ratio - 1) <= 0.1) return "";
  if (ratio >= 2) return `; a step takes ${ratio.toFixed(1)} times what was predicted`;
  return `; a step takes ${Math.round(100 * Math.abs(ratio - 1))} % ${ratio > 1 ? "more" : "less"} than predicted`;
}

// And which part of the step that is, where both timelines are there.
function differingPart(data) {
  const of = (predicted) => data.timelines.find((each) =>
    each.predicted === predicted && each.steps_counted > 0 && each.places.length === 0);
  const [was, is] = [of(true), of(false)];
  if (!was || !is || predictionError(data) === "") return null;
  const parts = PARTS.map(([field, , text]) =>
    ({text, was: meanOf(was.ranks, field), is: meanOf(is.ranks, field)}));
  const part = parts.reduce((most, each) =>
    (Math.abs(each.is - each.was) > Math.abs(most.is - most.was) ? each : most));
  return element("p", {}, `Most of the difference is in ${part.text}: ` +
    `${secondsText(part.was)} predicted, ${secondsText(part.is)} measured per step, mean of ranks.`);
}

function sweepVerdict(sweep) {
  const first = sweep.predictions[0];
  const fastest = fastestOf(sweep);
  const of = (each) => `${sweep.varies}=${each.value}`;
  const machines = sweep.varies === "nodes" ? sweep.predictions.filter((each) => each.efficiency >= 0.8) : [];
  const efficient = machines.length > 0 ? fastestOf({predictions: machines}) : fastest;
  return element("div", {class: "verdict"}, element("h2", {}, `Predicted: ${of(fastest)} is the fastest`),
    element("p", {}, sweepGain(sweep)),
    todo(efficient === fastest ? `Plan for ${of(fastest)}: autodist plan, with that in the cluster file, or in what is captured.` :
      `Take ${of(efficient)} where machines are dear: of those with which a replica keeps 80 % of what it does with ${of(first)}, it is the fastest. With ${of(fastest)} it keeps ${shareText(fastest.efficiency)}.`));
}

function todo(text) {
  const parts = text.split(/(--[a-z-]+)/).map((part, i) => i % 2 ? element("span", {class: "whole"}, part) : part);
  return element("p", {class: "todo"}, element("b", {}, "What to do: "), ...parts);
}

function verdictBlock(data) {
  const timeline = mainTimeline(data);
  if (timeline) {
    const about = timeline.predicted ? "As predicted by the simulator" : "As measured";
    return element("div", {class: "verdict"}, element("h2", {}, timeline.verdict.headline + predictionError(data)),
      timeline.verdict.reasons.map((reason) => element("p", {}, reason)), differingPart(data),
      todo(timeline.verdict.what_to_do + (predictionError(data) === "" ? "" :
        " As the prediction was off: doctor --measure gives the simulator this machine's own rates, where it has not.")),
      element("p", {class: "small"}, `${about}, ${timeline.title}: ${plural(timeline.steps_counted, "step")}` +
        (timeline.steps_in_trace > timeline.steps_counted ? `; the first and the last of ${timeline.steps_in_trace} do not count.` : ".")));
  }
  if (data.sweep) return sweepVerdict(data.sweep);
  if (data.prediction) {
    const {step_seconds: step, bound_seconds: bound} = data.prediction;
    return element("div", {class: "verdict"},
      element("h2", {}, `Predicted: bounded by ${data.prediction.bound_reason}`),
      element("p", {}, `A step of ${secondsText(step)} is ${(step / Math.max(bound, 1e-12)).toFixed(2)} times what this plan could reach at best.`),
      todo((data.plan && data.plan.variables.some((row) => row.next_best) ?
        "Look below at what the next best choice of each variable would add to a step. " : "") +
        "simulate --what-if says what other links or more machines would give; train with --report sets the measured step beside this one."));
  }
  if (data.placement) {
    const optimal = isOptimal(data.placement);
    return element("div", {class: "verdict"}, element("h2", {}, placementHeadline(data.placement)),
      todo(optimal ? "Nothing on these devices: only more devices, or faster ones, can make it shorter." :
        "Give place a longer --budget, as the gap to the bound is what may still be found; or try it with more --devices."));
  }
  return null;
}

function summarySection(data) {
  // The simulator's steady state, and all steps of a run, stand in the place of the median of a trace.
  const known = (each) => (each.predicted ? data.prediction : data.run && data.run.median_step_seconds);
  const shown = data.timelines.filter((each) => each.places.length === 0 && !known(each));
  const [predicted, ...lesser] = predictionTiles(data);
  const tiles = [...sweepTiles(data.sweep), ...placementTiles(data.placement), ...runTiles(data.run, data.plan), ...shown.flatMap(timelineTiles),
    ...(predicted ? [predicted] : []), ...(mainTimeline(data) ? shareTiles(mainTimeline(data)) : [])];
  return element("section", {id: "summary", "aria-label": "Summary"}, verdictBlock(data),
    element("div", {class: "tiles"}, tiles), element("div", {class: "tiles lesser"}, [...lesser, ...planTiles(data.plan)]), data.remarks.map((remark) => element("p", {class: "small soft remark"}, remark)));
}

function rankBars(timeline, longest) {
  const most = 64;
  const rows = timeline.ranks.slice(0, most).flatMap((rank) => {
    const step = rankStep(rank);
    const said = PARTS.map(([field, , text]) => `${text} ${secondsText(rank[field])}`).join(", ");
    return [
      element("div", {}, `rank ${rank.rank}`),
      element("div", {class: "bar", role: "img", "aria-label": `rank ${rank.rank}: ${said}`, title: said},
        PARTS.map(([field, name]) => element("i",
          {style: {width: `${100 * rank[field] / longest}%`, background: `var(--${name})`}}))),
      element("div", {class: "number figure"},
        `${secondsText(step)}, ${shareText(rank.computing_seconds / Math.max(step, 1e-12))} computing`),
    ];
  });
  const kind = timeline.predicted ? "predicted" : "measured";
  return element("div", {class: "bars"},
    element("div", {class: "group"}, `${timeline.title} (${kind})` +
      (timeline.ranks.length > most ? `, the first ${most} of ${timeline.ranks.length} ranks` : "")), rows);
}

function besideTable(timeline) {
  const count = timeline.steps_counted;
  return table("Beside the ops, by rank", [
    {title: "rank", text: (row) => String(row.rank), key: (row) => row.rank},
    {title: "updating", right: true, text: (row) => secondsText(row.owning_seconds), key: (row) => row.owning_seconds},
    {title: "on the wire", right: true, text: (row) => secondsText(row.sending_seconds), key: (row) => row.sending_seconds},
    {title: "ends behind median", right: true, text: (row) => secondsText(row.behind_seconds), key: (row) => row.behind_seconds},
    {title: "last of all", right: true, text: (row) => `${row.last_steps} of ${count}`, key: (row) => row.last_steps},
  ], timeline.ranks, {most: 16});
}

function waitsTable(timeline) {
  const largest = Math.max(0, ...timeline.waits.map((row) => row.seconds_per_step));
  return table("Variables that were waited for", [
    {title: "waited for", class: "name mono", text: (row) => row.name},
    {title: "per step and rank", right: true, text: (row) => secondsText(row.seconds_per_step),
      node: (row) => gauge(secondsText(row.seconds_per_step), row.seconds_per_step, largest, "gate"),
      key: (row) => row.seconds_per_step},
    {title: "waits", right: true, text: (row) => countText(row.waits), key: (row) => row.waits},
    {title: "longest", right: true, text: (row) => `${secondsText(row.longest_seconds)}, rank ${row.rank}`, key: (row) => row.longest_seconds},
  ], timeline.waits, {most: 10});
}

function ranksSection(data) {
  const timelines = data.timelines.filter((each) => each.ranks.length > 0);
  if (timelines.length === 0) return null;
  const longest = Math.max(...timelines.flatMap((each) => each.ranks.map(rankStep)), 1e-12);
  const main = mainTimeline(data);
  return element("section", {id: "ranks"}, element("h2", {}, "Where the time went"),
    element("p", {class: "lead"}, "Means per step of each rank. What owners of variables do (updating: adding gradients up, too) and what is sent happens beside the ops, on threads of its own; it delays the step only where an op waits for a variable's new version."),
    legend(PARTS.map(([, name, text]) => [name, text])),
    timelines.slice().sort((a, b) => Number(b.predicted) - Number(a.predicted)).map((each) => rankBars(each, longest)),
    main ? element("div", {class: "columns"},
      element("div", {class: "stack"}, element("h3", {}, "Late variables"),
        main.waits.length > 0 ? waitsTable(main) : element("p", {class: "soft small"}, "No op waited for a variable.")),
      element("div", {class: "stack"}, element("h3", {}, "Beside the ops, and stragglers"), besideTable(main))) : null);
}
