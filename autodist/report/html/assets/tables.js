
// Tables that sort by any column and filter by text, with the keyboard too.

// columns: {title, text(row) or node(row), key(row) to sort by, right, class}. Options: filter (a
// label for the search field), most (rows shown before "show all"), marked(row).
function table(caption, columns, rows, options = {}) {
  let order = rows.map((_, i) => i);
  let sorted = {column: -1, down: false};
  let all = false;
  let onPaper = false;
  let wanted = "";
  const body = element("tbody", {});
  const note = element("p", {class: "small soft", role: "status"});
  const heads = columns.map((column, i) => {
    const button = element("button", {type: "button", onclick: () => sort(i)}, column.title);
    return element("th", {scope: "col", class: column.right ? "right" : null}, button);
  });

  function sort(i) {
    const down = sorted.column === i ? !sorted.down : Boolean(columns[i].right);
    sorted = {column: i, down};
    const key = columns[i].key || columns[i].text;
    const keys = rows.map(key);
    order.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b) * (down ? -1 : 1));
    heads.forEach((head, at) => {
      if (at === i) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    fill();
  }

  function cell(column, row) {
    const classes = [column.right ? "right" : "", column.class || ""].join(" ").trim();
    return element("td", {class: classes || null}, column.node ? column.node(row) : column.text(row));
  }

  function matches(row) {
    return columns.some((column) => column.text && String(column.text(row)).toLowerCase().includes(wanted));
  }

  function fill() {
    const found = order.filter((i) => wanted === "" || matches(rows[i]));
    const shown = all || onPaper || !options.most ? found : found.slice(0, options.most);
    body.replaceChildren(...shown.map((i) => element("tr",
      {class: options.marked && options.marked(rows[i]) ? "chosen" : null},
      columns.map((column) => cell(column, rows[i])))));
    note.replaceChildren();
    if (shown.length < found.length) {
      note.append(`${shown.length} of ${countText(found.length)}. `, element("button",
        {type: "button", onclick: () => { all = true; fill(); }}, "Show all"));
    } else if (wanted !== "") {
      note.append(`${plural(found.length, "row")} of ${countText(rows.length)} match.`);
    }
  }

  const search = options.filter ? element("input", {type: "search", placeholder: options.filter,
    "aria-label": options.filter, oninput: (event) => {
      wanted = event.target.value.toLowerCase();
      fill();
    }}) : null;
  fill();
  folded.push((paper) => {
    onPaper = paper;
    fill();
  });
  const hint = element("p", {class: "small soft hint", hidden: true}, "Scroll the table sideways for all columns. →");
  const whole = element("table", {}, element("thead", {}, element("tr", {}, heads)), body);
  const box = element("div", {class: "table", tabindex: "0", role: "region", "aria-label": caption}, whole);
  const sizes = new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth; });
  for (const each of [box, whole]) sizes.observe(each);
  return element("div", {}, search ? element("div", {class: "tools"}, search) : null, hint, box, note);
}

// A column of figures that some rows may lack, with bars where there is a shade for them.
function figureColumn(rows, title, field, text, shade) {
  const lacks = (row) => row[field] === null || row[field] === undefined;
  const most = Math.max(0, ...rows.map((row) => row[field] || 0));
  return {title, right: true, text: (row) => (lacks(row) ? "–" : text(row[field])),
    node: (row) => (lacks(row) ? "–" : shade ? gauge(text(row[field]), row[field], most, shade) : text(row[field])),
    key: (row) => (lacks(row) ? Infinity : row[field])};
}

// A figure with a bar below it, in the share of the largest.
function gauge(text, value, largest, name = "compute") {
  const width = largest > 0 ? `${Math.max(0, 100 * value / largest)}%` : "0";
  return [text, element("i", {class: "gauge", style: {width, background: `var(--${name})`}, "aria-hidden": "true"})];
}
