// Finds sections whose words begin with every word that was typed. search-index.js holds
// [address, page, heading, text] per section.
(() => {
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  const root = document.body.dataset.root;
  const most = 12;

  const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
  const sections = searchIndex.map(([address, page, heading, text]) => ({
    address, page, heading, text,
    titleWords: wordsOf(page + " " + heading), words: wordsOf(text),
  }));

  // A hit in a heading counts more, a whole word more than its beginning, several more than one.
  function score(section, terms) {
    let sum = 0;
    for (const term of terms) {
      const hits = (words) => words.reduce(
        (all, word) => all + (word === term ? 2 : word.startsWith(term) ? 1 : 0), 0);
      const points = 10 * Math.min(2, hits(section.titleWords)) + Math.min(10, hits(section.words));
      if (points === 0) return 0;
      sum += points;
    }
    return sum;
  }

  function marked(text, terms) {
    const span = document.createElement("small");
    const lower = text.toLowerCase();
    const places = terms.map((term) => lower.indexOf(term)).filter((at) => at >= 0);
    const first = Math.min(...places, text.length);
    const begin = first < 60 || first === text.length ? 0 : text.indexOf(" ", first - 60) + 1;
    const end = text.indexOf(" ", begin + 180);
    const cut = (begin > 0 ? "… " : "") + text.slice(begin, end < 0 ? text.length : end);
    const pattern = new RegExp("(" + terms.join("|") + ")", "gi");  // letters and digits alone
    cut.split(pattern).forEach((piece, i) => {
      const node = i % 2 ? document.createElement("mark") : document.createTextNode(piece);
      if (i % 2) node.textContent = piece;
      span.append(node);
    });
    return span;
  }

  function show() {
    const terms = wordsOf(input.value);
    list.replaceChildren();
    list.hidden = terms.length === 0;
    if (list.hidden) return;
    const hits = sections.map((section) => [score(section, terms), section])
      .filter(([points]) => points > 0).sort((a, b) => b[0] - a[0]).slice(0, most);
    for (const [, section] of hits) {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = root + section.address;
      link.textContent = section.heading && section.heading !== section.page
        ? section.page + " › " + section.heading : section.page;
      link.append(marked(section.text, terms));
      item.append(link);
      list.append(item);
    }
    if (hits.length === 0) {
      const item = document.createElement("li");
      item.className = "none";
      item.textContent = "Nothing found";
      list.append(item);
    }
  }

  // The arrows go through the hits, Enter opens the first, Escape closes.
  function move(step) {
    const links = [...list.querySelectorAll("a")];
    if (links.length === 0) return;
    const now = links.indexOf(document.activeElement);
    const next = now + step;
    if (next < 0) input.focus();
    else links[Math.min(next, links.length - 1)].focus();
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("header")) list.hidden = true;
    if (event.target.closest("#found a")) list.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      list.hidden = true;
      input.blur();
    } else if (!list.hidden && event.key === "ArrowDown") {
      event.preventDefault();
      move(1);
    } else if (!list.hidden && event.key === "ArrowUp") {
      event.preventDefault();
      move(-1);
    } else if (event.key === "Enter" && document.activeElement === input) {
      const first = list.querySelector("a");
      if (first) location.href = first.href;
    }
  });
})();
