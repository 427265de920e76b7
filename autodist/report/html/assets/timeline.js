
// The timeline section: all traces one above the other on one scale of time, each from the start of
// the step that it shows.

// What the engine calls them, in words.
const ACTIVITIES = {
  compute: "computing", gate: "waiting for a variable", contribute: "handing over a gradient", queue: "waiting to be sent",
  wire: "being sent", send: "sending values", recv: "receiving values", merge: "adding up gradients", update: "updating",
  install: "installing a version", collective: "all-reduce by the library",
};
// What stands beside a rank's rows; of several of a kind "wire (2)".
const TRACKS = {
  compute: "computing", gate: "waiting", contribute: "handing over", queue: "to be sent", wire: "being sent",
  owner: "adding, updating", install: "new versions", collective: "library call",
};
function trackText(name) {
  return name.replace(/^[a-z]+/, (word) => TRACKS[word] || word);
}
const MANY_RANKS = 8;
const DIFFERENT = 10;  // steps that differ more have a scale each at first

class TimelineSection {
  constructor(timelines, about) {
    this.about = about;
    this.span = {from: 0, to: 1};  // ns of the longest step shown
    this.whole = {from: 0, to: 1};
    this.tip = element("div", {class: "tip", hidden: true, role: "tooltip"});
    this.details = element("div", {class: "details soft", role: "status", "aria-live": "polite"},
      element("span", {class: "screen"}, "Point at a row, or choose one with the keyboard: its facts stand here."));
    this.found = element("span", {class: "small soft", role: "status"});
    this.pointers = new Map();
    this.views = timelines.map((timeline) => new TimelineView(timeline));
    this.blocks = this.views.map((view) => this.block(view));
  }

  section() {
    const section = element("section", {id: "timeline"}, element("h2", {}, "Timeline of a step"),
      element("p", {class: "lead"}, this.about ? `${this.about} ` : "", element("span", {class: "screen"},
        "Drag to move, pinch or hold Ctrl and turn the wheel to zoom, drag with Shift to zoom to a stretch. " +
        "With the keyboard in a timeline: arrows move, + and − zoom, 0 shows the step, N and P choose rows, J and K tracks. "),
      "Dashed lines are the ends of the step."),
      this.tools(), this.blocks, this.details, this.tip);
    redrawn.push(() => this.drawNow());
    new ResizeObserver(() => this.draw()).observe(section);
    for (const view of this.views) this.showStep(view, this.firstStep(view), false);
    const lengths = this.views.map((view) => view.stepEnd - view.origin);
    this.common = Math.max(...lengths) <= DIFFERENT * Math.min(...lengths);
    this.scaleBox.checked = this.common;
    this.showWhole();
    return section;
  }

  firstStep(view) {
    const steps = view.timeline.steps;
    return Math.max(0, steps.findIndex((each) => each.step === view.timeline.median_step));
  }

  tools() {
    const button = (text, label, act) => element("button", {type: "button", "aria-label": label, title: label, onclick: act}, text);
    const activities = [...new Set(this.views.flatMap((view) => view.timeline.activities))];
    const chips = activities.map((name) => {
      const chip = element("button", {type: "button", class: "chip", "aria-pressed": "true", title: `in traces: ${name}`, "data-activity": name,
        onclick: () => {
          const hide = chip.getAttribute("aria-pressed") === "true";
          chip.setAttribute("aria-pressed", String(!hide));
          for (const view of this.views) {
            view.hidden[hide ? "add" : "delete"](name);
            view.lay();
          }
          this.draw();
        }}, swatch(name), ACTIVITIES[name] || name);
      return chip;
    });
    const search = element("input", {type: "search", placeholder: "Filter by name", "aria-label": "Filter rows by name",
      oninput: (event) => this.filter(event.target.value)});
    this.scaleBox = element("input", {type: "checkbox", onchange: (event) => {
      this.common = event.target.checked;
      this.showWhole();
    }});
    const scale = this.views.length > 1 ? element("label", {class: "small"}, this.scaleBox, " one scale for all") : null;
    return element("div", {},
      element("div", {class: "tools", role: "group", "aria-label": "Activities"}, chips),
      element("div", {class: "paper"}, legend(activities.map((name) => [name, ACTIVITIES[name] || name]))),
      element("div", {class: "tools"}, button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
        button("Whole step", "Show the whole step", () => this.showWhole()), this.rankChoice(), search, scale, this.found));
  }

  rankChoice() {
    const ranks = [...new Set(this.views.flatMap((view) => view.timeline.tracks.map((track) => track.rank)))].sort((a, b) => a - b);
    if (ranks.length < 2) return null;
    const choose = (wanted) => {
      for (const view of this.views) {
        view.ranks = wanted;
        view.lay();
      }
      this.draw();
    };
    const options = [];
    const places = this.views[0].timeline.places;
    const word = places.length > 0 ? "device" : "rank";
    if (ranks.length > MANY_RANKS) options.push(["first", `The first ${MANY_RANKS} ${word}s`]);
    options.push(["all", `All ${ranks.length} ${word}s`], ...ranks.slice(0, 1024).map((rank) => [String(rank), places[rank] || `Rank ${rank}`]));
    const first = new Set(ranks.slice(0, MANY_RANKS));
    if (ranks.length > MANY_RANKS) choose(first);
    return element("select", {"aria-label": "Ranks", onchange: (event) => {
      const value = event.target.value;
      choose(value === "all" ? null : value === "first" ? first : new Set([Number(value)]));
    }}, options.map(([value, text]) => element("option", {value}, text)));
  }

  block(view) {
    const timeline = view.timeline;
    const kind = timeline.predicted ? "predicted" : "measured";
    const steps = timeline.steps;
    view.canvas.setAttribute("aria-label", `Timeline ${timeline.title}, ${kind}`);
    const word = (each) => (each.step === timeline.median_step ? ", median" : each.step === timeline.slowest_step ? ", slowest" : "") + (each.whole ? "" : ", up to the end of the trace");
    view.select = element("select", {"aria-label": `Step of ${timeline.title}`, onchange: (event) => this.showStep(view, Number(event.target.value))},
      steps.map((each, i) => element("option", {value: i}, `Step ${each.step}: ${secondsText(each.seconds)}${word(each)}`)));
    view.said = element("span", {class: "small paper"});
    const turn = (by) => this.showStep(view, Math.min(steps.length - 1, Math.max(0, view.at + by)));
    this.listen(view);
    const kept = timeline.steps.length < timeline.steps_in_trace ? `${timeline.steps.length} of ${timeline.steps_in_trace} steps are in this page` : plural(timeline.steps_in_trace, "step");
    const joined = timeline.rows.stands_for.some((each) => each > 1) ? "; short neighbours are drawn as one row" : "";
    const dropped = timeline.rows_left_out > 0 ? `; the shortest ${countText(timeline.rows_left_out)} rows are left out` : "";
    return element("div", {class: "view"},
      element("div", {class: "head"}, element("span", {class: "badge"}, kind), element("h3", {}, timeline.title),
        element("span", {class: "small soft"}, kept + joined + dropped), view.said, element("span", {class: "gap"}),
        steps.length < 2 ? null : element("div", {class: "turn"}, element("button", {type: "button", "aria-label": "Step before", onclick: () => turn(-1)}, "‹"),
          view.select, element("button", {type: "button", "aria-label": "Step after", onclick: () => turn(1)}, "›"))),
      element("div", {class: "scroll"}, view.canvas));
  }

  showStep(view, at, draw = true) {
    const step = view.timeline.steps[at];
    if (!step) return;
    view.at = at;
    view.select.value = String(at);
    view.said.textContent = view.select.selectedOptions[0].textContent;
    view.origin = step.start_ns;
    view.stepEnd = step.start_ns + step.seconds * 1e9;
    if (draw) this.showWhole();
  }

  // What brings a measured step into sight; null where no timeline has it.
  shows(number) {
    for (const view of this.views) {
      const at = view.timeline.steps.findIndex((each) => each.step === number);
      if (view.timeline.predicted || at < 0) continue;
      return () => {
        this.showStep(view, at);
        view.canvas.focus({preventScroll: true});
        view.canvas.scrollIntoView({block: "center"});
      };
    }
    return null;
  }

  showWhole() {
    const length = (view) => Math.max(1000, view.stepEnd - view.origin);
    const longest = Math.max(...this.views.map(length));
    for (const view of this.views) view.factor = this.common ? 1 : length(view) / longest;
    this.whole = {from: -0.02 * longest, to: 1.04 * longest};
    this.setSpan({...this.whole});
  }

  // Not narrower than 50 ns; not far beyond a hundred steps.
  setSpan(span) {
    const width = Math.min(Math.max(span.to - span.from, 50), 100 * (this.whole.to - this.whole.from));
    const middle = (span.from + span.to) / 2;
    this.span = {from: middle - width / 2, to: middle + width / 2};
    this.draw();
  }

  zoom(factor, around = (this.span.from + this.span.to) / 2) {
    this.setSpan({from: around - (around - this.span.from) * factor, to: around + (this.span.to - around) * factor});
  }

  move(by) {
    this.setSpan({from: this.span.from + by, to: this.span.to + by});
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    this.waiting = false;
    for (const view of this.views) {
      view.span = {from: this.span.from * view.factor, to: this.span.to * view.factor};
      view.draw();
    }
  }

  filter(text) {
    const wanted = text.trim().toLowerCase();
    let count = 0;
    let seconds = 0;
    for (const view of this.views) {
      view.matching = wanted === "" ? null : view.timeline.names.map((name) => name.toLowerCase().includes(wanted));
      const matched = view.matched();
      count += matched.count;
      seconds += matched.seconds;
    }
    this.found.textContent = wanted === "" ? "" : `${plural(count, "row")} of the steps shown, ${secondsText(seconds)} in all`;
    this.draw();
  }

  listen(view) {
    const canvas = view.canvas;
    const time = (x) => view.time(x) / view.factor;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return {x: event.clientX - box.left, y: event.clientY - box.top};
    };
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.006), time(place(event).x));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.move(time(event.deltaX) - time(0));
      }
    }, {passive: false});
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, place(event).x);
      this.pressed = {x: place(event).x, moved: false, brush: event.shiftKey};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.pointerMoved(view, event, place(event)));
    canvas.addEventListener("pointerup", (event) => {
      const at = place(event);
      if (this.pressed && this.pressed.brush && this.pressed.moved) {
        const ends = [time(this.pressed.x), time(at.x)].sort((a, b) => a - b);
        this.setSpan({from: ends[0], to: ends[1]});
      } else if (this.pressed && !this.pressed.moved) {
        this.choose(view, view.rowAt(at.x, at.y));
      }
      this.pointers.delete(event.pointerId);
      this.pressed = null;
    });
    canvas.addEventListener("pointercancel", (event) => {
      this.pointers.delete(event.pointerId);
      this.pressed = null;
    });
    canvas.addEventListener("pointerleave", () => this.hover(view, -1));
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, time(place(event).x)));
    canvas.addEventListener("keydown", (event) => this.key(view, event));
  }

  pointerMoved(view, event, at) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) {
      this.hover(view, view.rowAt(at.x, at.y), event);
      return;
    }
    if (this.pressed && Math.abs(at.x - this.pressed.x) > 3) this.pressed.moved = true;
    if (this.pressed && this.pressed.brush) return;
    if (this.pointers.size === 2) {  // a pinch keeps both fingers on their times
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const factor = Math.max(8, Math.abs(before - other)) / Math.max(8, Math.abs(at.x - other));
      this.zoom(factor, view.time(other) / view.factor);
    } else if (this.pressed && this.pressed.moved) {
      this.move((view.time(before) - view.time(at.x)) / view.factor);
    }
    this.pointers.set(event.pointerId, at.x);
  }

  key(view, event) {
    const width = this.span.to - this.span.from;
    const acts = {
      ArrowLeft: () => this.move(-width / 8), ArrowRight: () => this.move(width / 8),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.showWhole(),
      n: () => this.chooseInSight(view, view.neighbour(1)), p: () => this.chooseInSight(view, view.neighbour(-1)),
      j: () => this.chooseInSight(view, view.beside(1)), k: () => this.chooseInSight(view, view.beside(-1)),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  chooseInSight(view, i) {
    this.choose(view, i);
    if (i < 0) return;
    const at = ((view.rows.start[i] + view.rows.end[i]) / 2 - view.origin) / view.factor;
    if (at < this.span.from || at > this.span.to) this.move(at - (this.span.from + this.span.to) / 2);
  }

  lines(view, i) {
    const facts = view.facts(i);
    const words = ACTIVITIES[facts.activity];
    return [facts.name, `${words ? `${words} (${facts.activity})` : facts.activity}, ${secondsText(facts.length)}` +
      (facts.bytes > 0 ? `, ${bytesText(facts.bytes)}` : ""), `${facts.where}; step ${facts.step}, ${secondsText(facts.at)} after the start of the step shown`];
  }

  choose(view, i) {
    for (const each of this.views) each.chosen = each === view ? i : -1;
    if (i >= 0) {
      const [name, ...rest] = this.lines(view, i);
      this.details.replaceChildren(element("b", {}, name), ` ${rest.join("; ")}`);
    }
    this.draw();
  }

  hover(view, i, event) {
    if (view.hovered !== i) {
      view.hovered = i;
      this.draw();
    }
    this.tip.hidden = i < 0;
    if (i < 0) return;
    const [name, ...rest] = this.lines(view, i);
    this.tip.replaceChildren(element("b", {}, name), ...rest.map((line) => element("div", {}, line)));
    const box = this.tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const below = event.clientY + 18 + box.height < window.innerHeight;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${below ? event.clientY + 18 : event.clientY - box.height - 12}px`;
  }
}

// Set to TimelineSection.shows of the page's timelines, where it has some.
let showsInTimeline = () => null;

function timelineSection(data) {
  if (data.timelines.length === 0) return null;
  const ordered = data.timelines.slice().sort((a, b) => Number(b.predicted) - Number(a.predicted));
  const timelines = new TimelineSection(ordered, data.placement ? data.placement.about_timeline : "");
  if (!data.placement) showsInTimeline = (number) => timelines.shows(number);
  return timelines.section();
}
