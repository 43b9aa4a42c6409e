// What is on the page, changed in place: what a reader has marked or scrolled stays.

const SVG = "http://www.w3.org/2000/svg";

function at(id) {
  return document.getElementById(id);
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, name, value) {
  if (value === undefined || value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

function made(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) mark(node, key, value);
  node.append(...children);
  return node;
}

function drawn(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) mark(node, key, value);
  node.append(...children);
  return node;
}

// As many children as `count`: new ones by `make`.
function count(node, wanted, make) {
  while (node.children.length > wanted) node.lastElementChild.remove();
  while (node.children.length < wanted) node.append(make(node.children.length));
  return [...node.children];
}

// A table of `columns` ({name, left, words}) and `rows` of cells: a text, or {text, class, title, bar, high}:
// a bar in per cent, of another colour above `high`; or {text, press}: a button. The first cell of a row is its name.
function table(node, columns, rows) {
  const signature = columns.map((column) => column.name).join("|");
  if (node.dataset.columns !== signature) {
    node.dataset.columns = signature;
    const names = columns.map((column) => made("th", { scope: "col", class: column.left ? "left" : null }, column.name));
    node.replaceChildren(made("thead", {}, made("tr", {}, ...names)), made("tbody"));
  }
  const lines = count(node.tBodies[0], rows.length, () => {
    const line = made("tr");
    columns.forEach((_, place) => line.append(place === 0 ? made("th", { scope: "row" }) : made("td")));
    return line;
  });
  lines.forEach((line, row) => {
    columns.forEach((column, place) => show(line.children[place], rows[row][place], column));
  });
}

function show(node, cell, column) {
  const { text, title, bar: share, high, press, class: more } = typeof cell === "object" ? cell : { text: cell };
  const classes = [column.left && "left", column.words && "words", more].filter(Boolean).join(" ");
  mark(node, "class", classes || null);
  mark(node, "title", title);
  if (press) return pressed(node, text, press);
  if (share === undefined) return say(node, text);
  if (!node.firstElementChild) node.replaceChildren(bar(), made("span"));
  const full = node.querySelector(".full");
  mark(full, "width", Math.max(0, Math.min(100, share)));
  mark(full, "class", share > high ? "full high" : "full");
  say(node.lastElementChild, " " + text);
}

// The same button as before, so that it keeps the focus.
function pressed(node, text, press) {
  if (node.firstElementChild?.tagName !== "BUTTON") node.replaceChildren(made("button", { type: "button", class: "small" }));
  node.firstElementChild.onclick = press;
  say(node.firstElementChild, text);
}

// The choices of a <select>; what was chosen stays so. The empty one is called `empty`.
function options(node, values, empty) {
  if (node.dataset.values === values.join("\n")) return;
  const chosen = node.value;
  node.dataset.values = values.join("\n");
  node.replaceChildren(...values.map((value) => made("option", { value }, value || empty)));
  if (values.includes(chosen)) node.value = chosen;
}

function bar() {
  const whole = drawn("rect", { width: 100, height: 10, rx: 2 });
  return drawn("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, whole,
    drawn("rect", { class: "full", height: 10, rx: 2 }));
}

// One row that reports an empty table.
function nothing(columns, text) {
  return [columns.map((_, place) => (place === 0 ? { text, class: "quiet left" } : ""))];
}
