"""What holds for every page of ours, whoever reads it: rules that a real browser checks.

Names come from the browser's own accessibility tree; contrast is computed of what is drawn, texts on
canvases included. Where axe-core lies beside Python (the package axe-playwright-python), its rules
are checked, too.
"""

import importlib.util
import pathlib

LEAST_CONTRAST = 4.5

# Before a page's scripts: notes each text that is drawn on a canvas, and the colour below it.
NOTE_CANVAS_TEXTS = """
window.canvasTexts = [];
const getContext = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind) { return getContext.call(this, kind, {willReadFrequently: true}); };
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
  const at = this.getTransform().transformPoint({x, y});
  const [red, green, blue, alpha] = this.getImageData(Math.round(at.x), Math.round(at.y), 1, 1).data;
  canvasTexts.push({canvas: this.canvas, text, x, y, colour: this.fillStyle, below: `rgba(${red}, ${green}, ${blue}, ${alpha / 255})`});
  fillText.call(this, text, x, y, ...more);
};
"""

# Texts that are hard to read, each once.
FAINT_TEXTS = """(() => {
  const parts = (colour) => {
    const hex = /^#(..)(..)(..)$/.exec(colour);
    if (hex) return [...hex.slice(1).map((each) => parseInt(each, 16)), 1];
    const numbers = colour.match(/[0-9.]+/g).map(Number);
    return numbers.length < 4 ? [...numbers, 1] : numbers;
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((one, other) => one - other);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) layers.unshift(parts(getComputedStyle(each).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opacity = (node) => (node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1);
  const faint = new Set();
  const check = (text, colour, below) => {
    const ratio = contrast(over(colour, below), below);
    if (ratio < LEAST) faint.add(`'${text.trim().slice(0, 40)}': ${ratio.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() === "" || !node.checkVisibility({visibilityProperty: true})) continue;
    const [r, g, b, a] = parts(getComputedStyle(node).color);
    check(walker.currentNode.data, [r, g, b, a * opacity(node)], ground(node));
  }
  for (const field of document.querySelectorAll("input[placeholder]")) {
    check(field.placeholder, parts(getComputedStyle(field, "::placeholder").color), ground(field));
  }
  for (const each of canvasTexts) {
    if (each.canvas.isConnected) check(each.text, parts(each.colour), over(parts(each.below), ground(each.canvas)));
  }
  return [...faint];
})()""".replace("LEAST", str(LEAST_CONTRAST))

STRUCTURE = """(() => {
  const wrong = [];
  if (!document.documentElement.lang) wrong.push("the page says no language");
  const heads = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((each) => each.checkVisibility());
  const levels = heads.map((each) => Number(each.tagName[1]));
  if (levels.filter((each) => each === 1).length !== 1 || levels[0] !== 1) wrong.push("the page does not begin with its one h1");
  levels.forEach((level, i) => { if (i > 0 && level > levels[i - 1] + 1) wrong.push(`h${level} '${heads[i].textContent}' comes after h${levels[i - 1]}`); });
  for (const head of document.querySelectorAll("th:not([scope=col]):not([scope=row])")) wrong.push(`the head '${head.textContent}' has no scope`);
  for (const table of document.querySelectorAll("table")) if (!table.querySelector("th")) wrong.push("a table without heads");
  for (const chart of document.querySelectorAll("canvas, svg, .bar")) {
    if (!chart.getAttribute("aria-label") || !["img", "application"].includes(chart.getAttribute("role"))) wrong.push(`a chart without a name: ${chart.outerHTML.slice(0, 80)}`);
  }
  return wrong;
})()"""

NEED_NAMES = {"button", "checkbox", "columnheader", "combobox", "image", "link", "region", "rowheader",
              "searchbox", "slider", "textbox", "application", "Canvas"}


def note_canvas_texts(browser):
    """From the next page on."""
    browser.call("Page.addScriptToEvaluateOnNewDocument", source=NOTE_CANVAS_TEXTS)


def nameless(browser):
    """What a screen reader would announce by its kind alone."""
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes
             if not node["ignored"] and not node.get("name", {}).get("value", "").strip()]
    return [f"a {role} without a name" for role in roles if role in NEED_NAMES]


AXE = importlib.util.find_spec("axe_playwright_python")


def axe_violations(browser):
    """Nothing where axe-core is not installed."""
    if AXE is None:
        return []
    browser.evaluate((pathlib.Path(AXE.origin).parent / "axe.min.js").read_text() + ";0")
    return browser.evaluate("axe.run().then((found) => found.violations.map((each) =>"
                            " `${each.id}: ${each.nodes[0].html.slice(0, 120)}`))")


def violations(browser):
    """Of the page as it stands, each in a line."""
    return [*browser.evaluate(STRUCTURE), *nameless(browser), *axe_violations(browser),
            *(f"contrast of {each}" for each in browser.evaluate(FAINT_TEXTS))]
