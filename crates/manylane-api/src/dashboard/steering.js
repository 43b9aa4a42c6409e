// Queues and buckets by worker, and rings between workers, of `manylane run`.

const RING_COLUMNS = [
  { name: "ring", left: true }, { name: "handed on, packets/s" }, { name: "waiting" }, { name: "of at most" },
  { name: "dropped: full" }, { name: "dropped: flow limit" }, { name: "waits" },
];

// Buckets in a row.
const MAP_WIDTH = 64;

function showSteering(steering, rates) {
  const host = at("steering");
  host.className = "maps";
  const ports = count(host, steering.ports.length, () => made("div", {}, made("p"), made("div"), made("ul", { class: "legend" })));
  steering.ports.forEach((port, place) => showMap(ports[place], port));
  const rings = steering.pairs.filter((pair) => pair.from !== pair.to);
  const rows = rings.map((pair) => [
    `${pair.from} \u2192 ${pair.to}`, rate(rates.of(`ring ${pair.from} ${pair.to}`, pair.handed)), whole(pair.backlog),
    whole(steering.netdev_max_backlog), loss(pair.backlog_full), loss(pair.flow_limit), whole(pair.waits),
  ]);
  table(at("rings"), RING_COLUMNS, rows.length ? rows : nothing(RING_COLUMNS, "There is one worker, or no port is steered by flow."));
  const parts = [];
  if (steering.rebalance) parts.push(`Buckets follow measured load: ${whole(steering.rebalanced)} moved so far.`);
  if (steering.reorder_sample > 0) {
    parts.push(`Order: of ${whole(steering.reorder_sampled)} packets looked at, ${whole(steering.reordered)} left behind a later one.`);
  }
  say(at("rings-note"), parts.join(" "));
}

function loss(number) {
  return { text: whole(number), class: number > 0 ? "bad-text" : null };
}

function showMap(node, port) {
  const [title, map, legend] = node.children;
  const queues = port.queues.map((queue) => queue.worker);
  const by = port.steering === "flow" ? "by flow" : "by queue";
  say(title, `${port.port}: ${by} (${port.why})`);
  const cells = port.buckets.length ? port.buckets : port.queues;
  const what = port.buckets.length ? "bucket" : "queue";
  const svg = map.firstElementChild || map.appendChild(drawn("svg", { class: "map", preserveAspectRatio: "none", role: "img" }));
  const across = Math.min(cells.length, MAP_WIDTH);
  const down = Math.ceil(cells.length / MAP_WIDTH);
  mark(svg, "viewBox", `0 0 ${across * 10} ${down * 10}`);
  const rects = count(svg, cells.length, (place) => drawn("rect", {
    x: (place % MAP_WIDTH) * 10, y: Math.floor(place / MAP_WIDTH) * 10, width: 9, height: 9 }, drawn("title")));
  const owned = new Map();
  cells.forEach((cell, place) => {
    owned.set(cell.worker, (owned.get(cell.worker) || 0) + 1);
    const moving = cell.held_by !== undefined || cell.moving_to !== undefined;
    mark(rects[place], "class", `k${cell.worker % LINES}${moving ? " moving" : ""}`);
    say(rects[place].firstElementChild, `${what} ${place}: worker ${cell.worker}${moving ? ", moving" : ""}`);
  });
  const workers = [...owned].sort(([one], [other]) => one - other);
  const entries = count(legend, workers.length, () => made("li"));
  workers.forEach(([worker, owns], place) => {
    mark(entries[place], "class", `key k${worker % LINES}`);
    const receives = queues.filter((owner) => owner === worker).length;
    const also = what === "bucket" && receives ? `, receives from ${receives} queue${receives === 1 ? "" : "s"}` : "";
    say(entries[place], `worker ${worker}: ${owns} ${what}${owns === 1 ? "" : "s"}${also}`);
  });
  mark(svg, "aria-label", `${port.port}: ${workers.map(([worker, owns]) => `worker ${worker} has ${owns} of ${cells.length} ${what}s`).join(", ")}`);
}
