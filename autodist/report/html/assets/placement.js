
// A placement: what each device does, holds and carries in a step.

const LOAD = [["work_seconds", "compute", "tasks"], ["transfer_seconds", "wire", "transfers"]];

function gapToBound(placement) {
  return placement.bound_seconds > 0 ? placement.value_seconds / placement.bound_seconds - 1 : 0;
}

function isOptimal(placement) {
  return gapToBound(placement) <= 1e-9;
}

function placementHeadline(placement) {
  const gap = gapToBound(placement);
  const what = placement.objective === "throughput" ? "largest load" : "step";
  return isOptimal(placement) ? `Optimal: a ${what} of ${secondsText(placement.value_seconds)}` :
    `A ${what} of ${secondsText(placement.value_seconds)}, at most ${shareText(gap)} above the best there can be`;
}

function placementTiles(placement) {
  if (!placement) return [];
  const throughput = placement.objective === "throughput";
  const used = placement.devices.filter((device) => device.tasks > 0).length;
  const work = placement.devices.reduce((sum, device) => sum + device.work_seconds, 0);
  return [mainTile(throughput ? "largest load" : "step", secondsText(placement.value_seconds), throughput ? "steps are pipelined" : "one step, start to end"),
    tile("bound", secondsText(placement.bound_seconds), "no placement is below"),
    tile("devices", `${used} of ${countText(placement.devices.length)}`, "have tasks"),
    tile("all tasks", secondsText(work), "work of all devices"),
    tile("found by", placement.found_by, plural(placement.evaluations, "evaluation"))];
}

function loadBars(placement) {
  const load = (device) => device.work_seconds + device.transfer_seconds;
  const longest = Math.max(...placement.devices.map(load), 1e-12);
  return element("div", {class: "bars"}, placement.devices.slice(0, 64).flatMap((device) => {
    const said = `${secondsText(device.work_seconds)} tasks, ${secondsText(device.transfer_seconds)} transfers`;
    return [element("div", {}, device.name),
      element("div", {class: "bar", role: "img", "aria-label": `${device.name}: ${said}`, title: said},
        LOAD.map(([field, shade]) => element("i", {style: {width: `${100 * device[field] / longest}%`, background: `var(--${shade})`}}))),
      element("div", {class: "number figure"}, secondsText(load(device)))];
  }));
}

function placementTable(placement) {
  const rows = placement.devices;
  const most = (field) => Math.max(0, ...rows.map((row) => row[field]));
  const bytes = (title, field, name, largest = most(field)) => ({title, right: true, text: (row) => bytesText(Math.round(row[field])),
    node: (row) => gauge(bytesText(Math.round(row[field])), row[field], largest, name), key: (row) => row[field]});
  const limit = most("capacity_bytes");
  const columns = [{title: "device", text: (row) => row.name},
    {title: "tasks", right: true, text: (row) => countText(row.tasks), key: (row) => row.tasks},
    bytes("memory", "memory_bytes", "update", Math.max(limit, most("memory_bytes"))),
    bytes("receives", "received_bytes", "wire"), bytes("sends", "sent_bytes", "wire")];
  if (limit > 0) {
    columns.splice(3, 0, {title: "limit", right: true, key: (row) => row.capacity_bytes,
      text: (row) => (row.capacity_bytes > 0 ? bytesText(row.capacity_bytes) : "–")});
  }
  return table("Devices", columns, rows, {most: 32});
}

function placementSection(placement) {
  if (!placement) return null;
  return element("section", {id: "placement"}, element("h2", {}, "Load, memory and traffic"),
    element("p", {class: "lead"}, "Per step and device. Transfers are the time for which its links are busy."),
    legend(LOAD.map(([, shade, text]) => [shade, text])), loadBars(placement), placementTable(placement));
}
