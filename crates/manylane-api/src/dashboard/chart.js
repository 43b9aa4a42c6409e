// Lines over the last two minutes, in SVG.

const SAMPLES = 120;
const WIDTH = 600;
const HEIGHT = 150;
const LINES = 8;

// Values by name, a sample a second. What is missing in a sample is a gap.
class Chart {
  constructor(node, what, unit) {
    this.what = what;
    this.unit = unit;
    this.history = new Map();
    this.times = 0;
    this.colours = new Map();
    const grid = [0, 0.5, 1].map((part) => drawn("line", { class: "grid", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }));
    this.lines = drawn("g");
    this.svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...grid, this.lines);
    this.top = made("span");
    this.legend = made("ul", { class: "legend" });
    const since = made("div", { class: "scale", "aria-hidden": "true" }, made("span", {}, "2 minutes ago"), made("span", {}, "now"));
    node.replaceChildren(made("div", { class: "scale" }, this.top, made("span", {}, what)), this.svg, since, this.legend);
  }

  // Colours stay with a name as long as it is shown.
  colour(name) {
    if (!this.colours.has(name)) {
      const taken = new Set(this.colours.values());
      const free = [...Array(LINES).keys()].find((colour) => !taken.has(colour));
      this.colours.set(name, free === undefined ? LINES - 1 : free);
    }
    return this.colours.get(name);
  }

  // `values`: [name, number], null where it is not known.
  add(values) {
    for (const [name] of values) if (!this.history.has(name)) this.history.set(name, Array(SAMPLES).fill(null));
    const now = new Map(values);
    for (const [name, samples] of this.history) {
      samples.push(now.has(name) ? now.get(name) : null);
      samples.shift();
      if (samples.every((value) => value === null)) this.history.delete(name);
    }
    this.draw();
  }

  draw() {
    const peak = (samples) => Math.max(0, ...samples.filter((value) => value !== null));
    const shown = [...this.history].map(([name, samples]) => ({ name, samples, peak: peak(samples) }));
    shown.sort((one, other) => other.peak - one.peak || one.name.localeCompare(other.name));
    const left = shown.splice(LINES);
    for (const { name } of left) this.colours.delete(name);
    for (const name of [...this.colours.keys()]) if (!this.history.has(name)) this.colours.delete(name);
    const top = ceiling(Math.max(0, ...shown.map((line) => line.peak)));
    say(this.top, short(top, this.unit));
    const lines = count(this.lines, shown.length, () => drawn("polyline"));
    const names = count(this.legend, shown.length, () => made("li"));
    shown.forEach(({ name, samples }, place) => {
      const points = samples.flatMap((value, time) => {
        const [x, y] = [(time / (SAMPLES - 1)) * WIDTH, HEIGHT * (1 - value / top)];
        return value === null ? [] : [`${x.toFixed(1)},${y.toFixed(1)}`];
      });
      mark(lines[place], "points", points.join(" "));
      mark(lines[place], "class", "k" + this.colour(name));
      mark(names[place], "class", "key k" + this.colour(name));
      say(names[place], `${name} ${rate(samples[SAMPLES - 1], this.unit)}`);
    });
    const now = shown.map(({ name, samples }) => `${name} ${rate(samples[SAMPLES - 1], this.unit)}`);
    mark(this.svg, "aria-label", `${this.what}, last two minutes. Now: ${now.join(", ") || "nothing"}.`);
  }
}

// 1, 2 or 5 times a power of ten, at least 10.
function ceiling(value) {
  if (value <= 10) return 10;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= value);
}
