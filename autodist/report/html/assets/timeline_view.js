
// One trace on a canvas: tracks of ranks from top to bottom, time from left to right. Knows no
// buttons; timeline.js moves it.

const GUTTER = 110;
const AXIS = 24;
const RANK_HEAD = 20;
const TRACK_GAP = 3;
const LANE = 16;
const TALLEST_TRACK = 64;  // of many lanes, which get thinner
const BETWEEN_LABELS = 12;

// Columns as they travel become rows by lane, each lane by start and without overlap.
function unpack(timeline) {
  const packed = timeline.rows;
  const count = packed.track.length;
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; ++i) {
    at += packed.start_delta_ns[i];
    start[i] = at;
    end[i] = at + packed.length_ns[i];
  }
  const tracks = timeline.tracks.map((track) => ({...track, rows: Array.from({length: track.lanes}, () => [])}));
  for (let i = 0; i < count; ++i) tracks[packed.track[i]].rows[packed.lane[i]].push(i);
  return {...packed, start, end, count, tracks};
}

class TimelineView {
  constructor(timeline) {
    this.timeline = timeline;
    this.rows = unpack(timeline);
    this.canvas = element("canvas", {tabindex: "0", role: "application"});
    this.span = {from: 0, to: 1};  // ns since the origin
    this.origin = 0;  // ns: where the step that is shown begins
    this.stepEnd = 0;
    this.factor = 1;  // of the section's time
    this.hidden = new Set();  // activities
    this.ranks = null;  // a set, or all
    this.matching = null;  // by number of name, or all
    this.chosen = -1;
    this.hovered = -1;
    this.lay();
  }

  // Which tracks are to be seen, and where.
  lay() {
    const visible = (i) => !this.hidden.has(this.timeline.activities[this.rows.activity[i]]);
    this.lines = [];
    let y = AXIS;
    let rank = -1;
    this.rows.tracks.forEach((track, number) => {
      if (this.ranks && !this.ranks.has(track.rank)) return;
      if (!track.rows.some((lane) => lane.some(visible))) return;
      if (track.rank !== rank) {
        rank = track.rank;
        this.lines.push({head: this.place(rank), y, height: RANK_HEAD});
        y += RANK_HEAD;
      }
      const height = Math.min(TALLEST_TRACK, track.lanes * LANE);
      this.lines.push({track, number, y, height, lane: height / track.lanes});
      y += height + TRACK_GAP;
    });
    this.height = y + 6;
  }

  place(rank) {
    return this.timeline.places[rank] || `rank ${rank}`;
  }

  x(nanoseconds) {
    return GUTTER + (nanoseconds - this.origin - this.span.from) / (this.span.to - this.span.from) * (this.width - GUTTER);
  }

  time(x) {
    return this.span.from + (x - GUTTER) / Math.max(1, this.width - GUTTER) * (this.span.to - this.span.from);
  }

  fit() {
    this.width = Math.max(200, this.canvas.parentElement ? this.canvas.parentElement.clientWidth : 800);
    const ratio = window.devicePixelRatio || 1;
    const pixels = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== pixels[0]) this.canvas.width = pixels[0];
    if (this.canvas.height !== pixels[1]) this.canvas.height = pixels[1];
    this.canvas.style.height = `${this.height}px`;
    return ratio;
  }

  draw() {
    const ratio = this.fit();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const shades = {};
    for (const name of [...this.timeline.activities, "text", "soft", "line", "faint", "card", "focus"]) shades[name] = colour(name);
    pen.fillStyle = shades.card;
    pen.fillRect(0, 0, this.width, this.height);
    this.drawAxis(pen, shades);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, AXIS, this.width - GUTTER, this.height - AXIS);
    pen.clip();
    for (const line of this.lines) if (line.track) this.drawTrack(pen, shades, line);
    pen.restore();
    this.drawLabels(pen, shades);
    this.drawChosen(pen, shades);
  }

  // How far ticks are from each other, as close as their labels can stand, and what these say.
  ticks(pen) {
    const {from, to} = this.span;
    const pixels = (this.width - GUTTER) / (to - from);
    const far = Math.max(Math.abs(from), Math.abs(to));
    const [unit, one] = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]].reverse().find(([, size]) => far >= size || size === 1);
    for (let power = 10 ** Math.floor(Math.log10(to - from) - 3);; power *= 10) {
      for (const tick of [power, 2 * power, 2.5 * power, 5 * power]) {
        const exact = (places) => Math.abs(tick / one - (tick / one).toFixed(places)) < 1e-6 * tick / one;
        const places = [0, 1, 2, 3, 4, 5, 6, 7, 8].find(exact) || 0;
        const text = (at) => (Math.abs(at) < tick / 2 ? "0" : `${(at / one).toFixed(places)} ${unit}`);
        const widest = Math.max(...[from, to].map((at) => pen.measureText(text(at)).width));
        if (tick * pixels >= widest + BETWEEN_LABELS) return {tick, text};
      }
    }
  }

  drawAxis(pen, shades) {
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.lineWidth = 1;
    const {tick, text} = this.ticks(pen);
    for (let number = Math.ceil(this.span.from / tick); number * tick <= this.span.to; ++number) {
      const x = Math.round(this.x(this.origin + number * tick)) + 0.5;
      pen.strokeStyle = shades.faint;
      pen.beginPath();
      pen.moveTo(x, AXIS);
      pen.lineTo(x, this.height);
      pen.stroke();
      pen.fillStyle = shades.soft;
      const label = text(number * tick);
      const half = pen.measureText(label).width / 2;
      if (x - half > GUTTER && x + half < this.width) pen.fillText(label, x, AXIS / 2);
    }
    pen.strokeStyle = shades.soft;
    pen.setLineDash([4, 3]);
    for (const edge of [this.origin, this.stepEnd]) {  // where the step begins and ends
      const x = Math.round(this.x(edge)) + 0.5;
      if (x < GUTTER || x > this.width) continue;
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.height);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  // The first row of a lane that ends after `at`.
  firstAfter(lane, at) {
    let low = 0;
    let high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows.end[lane[middle]] <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  isSeen(i) {
    return !this.hidden.has(this.timeline.activities[this.rows.activity[i]]);
  }

  drawTrack(pen, shades, line) {
    const rows = this.rows;
    const from = this.origin + this.span.from;
    const to = this.origin + this.span.to;
    line.track.rows.forEach((lane, number) => {
      const y = line.y + number * line.lane;
      const height = Math.max(1, line.lane - (line.lane > 6 ? 1 : 0));
      let painted = -1;  // up to this pixel: shorter rows need not be drawn again
      for (let k = this.firstAfter(lane, from); k < lane.length && rows.start[lane[k]] < to; ++k) {
        const i = lane[k];
        if (!this.isSeen(i)) continue;
        const left = Math.max(GUTTER - 1, this.x(rows.start[i]));
        const right = Math.min(this.width + 1, this.x(rows.end[i]));
        const width = Math.max(right - left, 0.75);
        if (left + width < painted + 0.5) continue;
        painted = left + width;
        const activity = this.timeline.activities[rows.activity[i]];
        pen.globalAlpha = this.matching && !this.matching[rows.name[i]] ? 0.13 : 1;
        pen.fillStyle = shades[activity] || shades.soft;
        pen.fillRect(left, y, width > 3 ? width - 0.5 : width, height);
        if (width > 42 && height >= 11) this.drawName(pen, ink(pen.fillStyle), i, left, y, width, height);
      }
    });
    pen.globalAlpha = 1;
  }

  drawName(pen, shade, i, left, y, width, height) {
    const letters = Math.floor((width - 8) / 6.1);
    let name = this.name(i);
    if (name.length > letters) name = `${name.slice(0, Math.max(1, letters - 1))}…`;
    pen.fillStyle = shade;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(name, left + 4, y + height / 2 + 0.5, width - 6);
  }

  name(i) {
    const stands = this.rows.stands_for[i];
    if (stands > 1) return `${stands} short rows`;
    return this.timeline.names[this.rows.name[i]].replace(/^aten::/, "");
  }

  drawLabels(pen, shades) {
    pen.fillStyle = shades.card;
    pen.fillRect(0, 0, GUTTER, this.height);
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const line of this.lines) {
      pen.fillStyle = line.head ? shades.text : shades.soft;
      pen.font = `${line.head ? "600 12px" : "11px"} system-ui, sans-serif`;
      const left = line.head ? 8 : 16;
      pen.fillText(line.head || trackText(line.track.name), left, line.y + (line.head ? RANK_HEAD / 2 + 2 : line.height / 2), GUTTER - left - 4);
    }
    pen.strokeStyle = shades.line;
    pen.beginPath();
    pen.moveTo(GUTTER - 0.5, 0);
    pen.lineTo(GUTTER - 0.5, this.height);
    pen.stroke();
  }

  boxOf(i) {
    const line = this.lines.find((each) => each.number === this.rows.track[i]);
    if (!line) return null;
    const left = Math.max(GUTTER, this.x(this.rows.start[i]));
    const right = Math.min(this.width, this.x(this.rows.end[i]));
    return {left, width: Math.max(2, right - left), top: line.y + this.rows.lane[i] * line.lane, height: Math.max(2, line.lane - 1)};
  }

  drawChosen(pen, shades) {
    for (const i of [this.chosen, this.hovered]) {
      const box = i >= 0 ? this.boxOf(i) : null;
      if (!box || box.left > this.width || box.left + box.width < GUTTER) continue;
      pen.strokeStyle = shades.text;
      pen.lineWidth = i === this.chosen ? 2 : 1;
      pen.strokeRect(box.left, box.top - 0.5, box.width, box.height + 1);
    }
  }

  // The row at a place of the canvas, with some pixels of patience; -1 for none.
  rowAt(x, y) {
    const line = this.lines.find((each) => each.track && y >= each.y && y < each.y + each.height);
    if (!line || x < GUTTER) return -1;
    const lane = line.track.rows[Math.min(line.track.lanes - 1, Math.floor((y - line.y) / line.lane))];
    const patience = this.time(x + 3) - this.time(x);
    const at = this.origin + this.time(x);
    let best = -1;
    let closest = patience;
    for (let k = this.firstAfter(lane, at - patience); k < lane.length; ++k) {
      const i = lane[k];
      if (this.rows.start[i] > at + patience) break;
      if (!this.isSeen(i)) continue;
      const away = Math.max(this.rows.start[i] - at, at - this.rows.end[i], 0);
      if (away <= closest) {
        best = i;
        closest = away;
        if (away === 0) break;
      }
    }
    return best;
  }

  // The seen neighbour of the chosen row on its lane, or the first one in sight.
  neighbour(direction) {
    const rows = this.rows;
    if (this.chosen < 0) {
      for (const line of this.lines) {
        if (!line.track) continue;
        const lane = line.track.rows[0];
        const k = this.firstAfter(lane, this.origin + this.span.from);
        if (k < lane.length) return lane[k];
      }
      return -1;
    }
    const lane = rows.tracks[rows.track[this.chosen]].rows[rows.lane[this.chosen]];
    for (let k = lane.indexOf(this.chosen) + direction; k >= 0 && k < lane.length; k += direction) {
      if (this.isSeen(lane[k])) return lane[k];
    }
    return this.chosen;
  }

  // The row of the next track, up or down, at the chosen row's place in time.
  beside(direction) {
    if (this.chosen < 0) return this.neighbour(1);
    const tracks = this.lines.filter((line) => line.track);
    const here = tracks.findIndex((line) => line.number === this.rows.track[this.chosen]);
    const there = tracks[here + direction];
    if (!there) return this.chosen;
    const lane = there.track.rows[0];
    const k = Math.min(this.firstAfter(lane, this.rows.start[this.chosen]), lane.length - 1);
    return k < 0 ? this.chosen : lane[k];
  }

  facts(i) {
    const rows = this.rows;
    const track = rows.tracks[rows.track[i]];
    const facts = {
      name: rows.stands_for[i] > 1 ? `${rows.stands_for[i]} short rows, one after the other` : this.timeline.names[rows.name[i]],
      activity: this.timeline.activities[rows.activity[i]],
      length: (rows.end[i] - rows.start[i]) / 1e9,
      at: (rows.start[i] - this.origin) / 1e9,
      where: `${this.place(track.rank)}, ${track.name}`, step: rows.step[i], bytes: rows.bytes[i],
    };
    return facts;
  }

  // Rows that match the filter in the sight of the step, and their time.
  matched() {
    const rows = this.rows;
    let count = 0;
    let seconds = 0;
    for (let i = 0; i < rows.count; ++i) {
      if (!this.isSeen(i) || (this.matching && !this.matching[rows.name[i]])) continue;
      if (this.ranks && !this.ranks.has(rows.tracks[rows.track[i]].rank)) continue;
      if (rows.end[i] < this.origin || rows.start[i] > this.stepEnd) continue;
      count += rows.stands_for[i];
      seconds += (rows.end[i] - rows.start[i]) / 1e9;
    }
    return {count, seconds};
  }
}
