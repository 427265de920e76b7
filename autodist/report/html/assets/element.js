"use strict";

// Elements and text. Whatever comes from the data becomes text nodes, never markup.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function secondsText(seconds) {
  const size = Math.abs(seconds);
  if (size === 0) return "0";
  if (size < 1e-6) return `${digits(seconds * 1e9)} ns`;
  if (size < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (size < 1) return `${digits(seconds * 1e3)} ms`;
  return `${digits(seconds)} s`;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = bytes;
  while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return unit === 0 ? `${value} B` : `${digits(value)} ${units[unit]}`;
}

function countText(number) {
  return Number.isInteger(number) ? number.toLocaleString("en-US") : numberText(number);
}

function numberText(number) {
  if (number === null || Number.isNaN(number)) return "not finite";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return number.toExponential(3);
  return String(Number(number.toPrecision(5)));
}

function shareText(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

function plural(count, word) {
  return `${countText(count)} ${word}${count === 1 ? "" : "s"}`;
}

// The colour of an activity as the theme has it now.
function colour(name) {
  const found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return found || getComputedStyle(document.documentElement).getPropertyValue("--queue").trim();
}

// Black or white, whichever is easier to read on a colour: at least 4.5 : 1 on any.
function ink(shade) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(shade.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

function swatch(name) {
  return element("i", {class: "swatch", style: {background: `var(--${name})`}, "aria-hidden": "true"});
}

function legend(entries) {
  return element("div", {class: "legend"}, entries.map(([name, text]) =>
    element("span", {}, swatch(name), text)));
}

// What has to be drawn anew, at once, when the theme changes.
const redrawn = [];
// What is folded away on the screen: each is called with whether it goes to paper.
const folded = [];

function theme() {
  return document.documentElement.dataset.theme;
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  for (const draw of redrawn) draw();
}

// Light or dark as the system says, until the button is used.
function followSystem() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
}

// Paper is light, and has no button to show the rest with.
function followPrinter() {
  let before = theme();
  window.addEventListener("beforeprint", () => {
    before = theme();
    for (const each of folded) each(true);
    setTheme("light");
  });
  window.addEventListener("afterprint", () => {
    for (const each of folded) each(false);
    setTheme(before);
  });
}
