
// The page: its sections in order, from the data that stands in it.

const SHARD_LEAD = "Largest first. Why says what the plan follows from: owners, slices, sparse rows, and when the next step needs the variable.";
const NEXT_BEST_LEAD = " The next best is the best other choice for this variable alone; what it would add to a step is simulated for the largest variables, and by arithmetic for the others.";

// What explains a choice: the best other one, and what it would add to the step.
function nextBestColumns(plan) {
  if (!plan.variables.some((row) => row.next_best)) return [];
  const of = (row, read, other = "") => (row.next_best ? read(row.next_best) : other);
  const cost = (next) => (next.cost_seconds < 0 ? "−" : "+") + secondsText(Math.abs(next.cost_seconds));
  const waited = (next) => (next.waited_seconds > 0 ? ` The step waits ${secondsText(next.waited_seconds)} for it as it is.` : "");
  return [
    {title: "next best", class: "wide", key: (row) => of(row, (next) => next.cost_seconds, -Infinity),
      text: (row) => of(row, (next) => `${cost(next)} ${next.choice}: ${next.why}`),
      node: (row) => (row.next_best ? [element("b", {}, cost(row.next_best)), ` ${row.next_best.choice}: ${row.next_best.why}.${waited(row.next_best)}`] : "")},
  ];
}

function planTable(plan) {
  const largest = Math.max(0, ...plan.variables.map((row) => row.bytes || 0));
  return table("Variables", [
    {title: "variable", class: "name mono", text: (row) => row.name},
    {title: "shape", class: "mono", text: (row) => (row.shape ? `[${row.shape.join(", ")}]` : "")},
    {title: "size", right: true, text: (row) => (row.bytes === null ? "" : bytesText(row.bytes)),
      node: (row) => (row.bytes === null ? "" : gauge(bytesText(row.bytes), row.bytes, largest)), key: (row) => row.bytes || 0},
    {title: "synchronised by", text: (row) => row.choice || "", class: "name"},
    {title: "slices", right: true, text: (row) => (row.slices === null ? "" : countText(row.slices)), key: (row) => row.slices || 0},
    ...nextBestColumns(plan),
    {title: "why", class: "wide", text: (row) => row.why},
  ], plan.variables, {filter: "Filter variables", most: 25});
}

function planRanks(plan) {
  if (plan.ranks.length === 0) return null;
  const rows = plan.ranks.map((rank, number) => ({...rank, number}));
  const most = (field) => Math.max(0, ...rows.map((row) => row[field]));
  const bytes = (title, field, name) => ({title, right: true, text: (row) => bytesText(row[field]),
    node: (row) => gauge(bytesText(row[field]), row[field], most(field), name), key: (row) => row[field]});
  return element("div", {class: "stack"}, element("h3", {}, "Placement: what each rank owns and carries in a step"),
    table("Ranks", [{title: "rank", text: (row) => String(row.number), key: (row) => row.number},
      {title: "device", class: "mono", text: (row) => row.device + (row.computes ? "" : " (serves only)")},
      bytes("owns", "owned_bytes", "merge"), bytes("sends", "sent_bytes", "wire"), bytes("receives", "received_bytes", "wire")],
    rows, {most: 32}));
}

function planAlternatives(plan) {
  if (plan.alternatives.length === 0) return null;
  const largest = Math.max(0, ...plan.alternatives.map((row) => row.busiest_bytes));
  const predicted = plan.alternatives.some((row) => row.step_seconds !== null);
  const columns = [
    {title: "builder", class: "mono", text: (row) => row.name + (row.chosen ? " (chosen)" : "")},
    {title: "busiest rank, per step", right: true, text: (row) => (row.refused ? "–" : bytesText(row.busiest_bytes)),
      node: (row) => (row.refused ? "–" : gauge(bytesText(row.busiest_bytes), row.busiest_bytes, largest, "wire")),
      key: (row) => (row.refused ? Infinity : row.busiest_bytes)},
    {title: "what it does", class: "wide", text: (row) => row.refused || [row.description, row.remark].filter(Boolean).join(" · ")},
  ];
  if (predicted) {
    const figure = (...of) => figureColumn(plan.alternatives, ...of);
    columns.splice(1, 0, figure("predicted step", "step_seconds", secondsText, "compute"), figure("peak memory", "peak_bytes", bytesText, "update"));
  }
  return element("div", {class: "stack wider"}, element("h3", {}, "Alternatives on the same cluster"),
    table("Alternatives", columns, plan.alternatives, {marked: (row) => row.chosen, most: 24}));
}

function planSection(data) {
  const plan = data.plan;
  if (!plan) return null;
  const kept = plan.variables.length < plan.variable_count ?
    ` The largest ${countText(plan.variables.length)} of ${countText(plan.variable_count)} are in this page.` : "";
  const by = data.chosen_by ? `Chosen by ${data.chosen_by}. ` : "";
  const again = plan.not_reproducible ? ` It is ${plan.not_reproducible}.` : "";
  return element("section", {id: "plan"}, element("h2", {}, "The plan"),
    element("p", {class: "lead"}, by + SHARD_LEAD + (nextBestColumns(plan).length > 0 ? NEXT_BEST_LEAD : "") + kept + again), planTable(plan),
    element("div", {class: "columns"}, planAlternatives(plan), planRanks(plan)));
}

const MEMORY = [["parameter", "compute", "parameters"], ["gradient", "contribute", "gradients"],
  ["activation", "gate", "activations"], ["optimizer", "update", "optimizer"],
  ["overhead", "queue", "context and allocator"], ["communication", "wire", "communication"]];

function memorySection(prediction) {
  if (!prediction || prediction.memory.length === 0) return null;
  const longest = Math.max(...prediction.memory.map((rank) => Math.max(memoryOf(rank), rank.capacity_bytes)), 1);
  const of = (rank, name) => (rank.parts.find((part) => part.name === name) || {bytes: 0}).bytes;
  const most = 64;
  const kinds = MEMORY.filter(([name]) => name !== "overhead" || prediction.memory.some((rank) => of(rank, name) > 0));
  const limits = prediction.memory.some((rank) => rank.capacity_bytes > 0);
  const rows = prediction.memory.slice(0, most).flatMap((rank, number) => {
    const limit = rank.capacity_bytes;
    const free = limit === 0 ? "limit unknown" : memoryOf(rank) > limit ? `${bytesText(memoryOf(rank) - limit)} too much` : `of ${bytesText(limit)}`;
    return [element("div", {}, `rank ${number}`),
      element("div", {class: "bar", role: "img", "aria-label": `rank ${number}, ${rank.device}: ${bytesText(memoryOf(rank))}, ${free}`, title: rank.device},
        kinds.map(([name, shade]) => element("i", {style: {width: `${100 * of(rank, name) / longest}%`, background: `var(--${shade})`}})),
        limit > 0 ? element("b", {style: {left: `calc(${100 * limit / longest}% - 2px)`}}) : null),
      element("div", {class: "number figure"}, `${bytesText(memoryOf(rank))}, ${free}`)];
  });
  return element("section", {id: "memory"}, element("h2", {}, "Memory"),
    element("p", {class: "lead"}, "What a step needs on each rank's device, predicted." +
      (limits ? " The red line is the device's limit." : " The cluster states no limits (`memory` of its devices).") +
      (prediction.memory.length > most ? ` The first ${most} of ${prediction.memory.length} ranks.` : "")),
    legend(kinds.map(([, shade, text]) => [shade, text])), element("div", {class: "bars"}, rows));
}

function sourcesFooter(data) {
  return element("footer", {}, element("p", {}, `AutoDist ${data.version}.` +
    (data.sources.length > 0 ? ` Made from ${data.sources.join(", ")}.` : "") +
    " The file is complete in itself: it asks nothing of any network."),
  data.plan && data.plan.program_digest ? element("p", {class: "mono"}, `program ${data.plan.program_digest}`) : null);
}

function header(data) {
  const name = element("span", {}, "");
  const show = () => { name.textContent = theme() === "dark" ? "Light" : "Dark"; };
  redrawn.push(show);
  const plan = data.plan;
  const facts = [plan && plan.graph ? `graph ${plan.graph}` : null, data.chosen_by || null,
    plan && plan.strategy_id ? `strategy ${plan.strategy_id}` : null].filter(Boolean);
  return element("header", {class: "top"},
    element("div", {}, element("h1", {}, data.title), element("div", {class: "soft small"}, facts.join(" · "))),
    element("button", {type: "button", class: "theme", "aria-label": "Switch between light and dark",
      onclick: () => setTheme(theme() === "dark" ? "light" : "dark")}, name));
}

const TITLES = {summary: "Summary", timeline: "Timeline", ranks: "Time by rank", run: "Run", plan: "Plan", memory: "Memory", placement: "Devices", "what-if": "What if"};

function buildPage(data) {
  followSystem();
  followPrinter();
  const page = document.getElementById("page");
  const sections = [summarySection(data), sweepSection(data.sweep), timelineSection(data), placementSection(data.placement), ranksSection(data), runSection(data.run, data.plan),
    planSection(data), memorySection(data.prediction)].filter(Boolean);
  page.append(header(data), element("nav", {class: "sections", "aria-label": "Sections"},
    sections.map((section) => element("a", {href: `#${section.id}`}, TITLES[section.id]))), ...sections, sourcesFooter(data));
  setTheme(theme());
}

buildPage(JSON.parse(document.getElementById("data").textContent));
