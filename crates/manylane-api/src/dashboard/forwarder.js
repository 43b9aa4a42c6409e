// What `manylane run` shows.

const PORT_COLUMNS = [
  { name: "port", left: true }, { name: "link", left: true }, { name: "received, packets/s" }, { name: "bit/s" },
  { name: "transmitted, packets/s" }, { name: "bit/s" }, { name: "dropped, packets/s" }, { name: "lost by device" },
];
const WORKER_COLUMNS = [{ name: "worker", left: true }, { name: "load", left: true }, { name: "received, packets/s" }, { name: "held" }];
const DROP_COLUMNS = [{ name: "reason", left: true }, { name: "packets/s" }, { name: "since the start" }];
const LEDGER_COLUMNS = ["port", "received", "created", "transmitted", "delivered", "dropped", "held", "difference"]
  .map((name, place) => ({ name, left: place === 0 }));
const NEIGHBOUR_COLUMNS = [
  { name: "address", left: true }, { name: "port", left: true }, { name: "link-layer address", left: true },
  { name: "state", left: true }, { name: "for" },
];
const NEIGHBOURS_SHOWN = 200;

class Forwarder {
  constructor() {
    this.rates = new Rates();
    this.ports = new Chart(at("ports-chart"), "received by port, packets/s", "");
    this.drops = new Chart(at("drops-chart"), "dropped by reason, packets/s", "");
    this.round = 0;
    this.neighbours = [];
  }

  paths() {
    // Up to 30,000 neighbours, which seldom change.
    const often = ["ports", "workers", "drops", "ledger", "steering"];
    return this.round++ % 5 === 0 ? [...often, "neighbours"] : often;
  }

  show({ ports, workers, drops, ledger, steering, neighbours }) {
    const port = this.showPorts(ports);
    this.showWorkers(workers);
    const dropped = this.showDrops(drops);
    const moves = port.received > 0 || port.transmitted > 0;
    this.showLedger(ledger, steering, moves);
    showSteering(steering, this.rates);
    if (neighbours) this.showNeighbours(neighbours);
    tiles([
      ["received, packets/s", rate(port.received)], ["received", rate(port.bits, "bit/s")],
      ["transmitted, packets/s", rate(port.transmitted)], ["dropped, packets/s", rate(dropped), dropped > 0 ? "bad-text" : ""],
    ]);
  }

  showPorts(ports) {
    const rates = ports.map((port) => ({
      received: this.rates.of(`${port.name} rx`, port.received), received_bits: bits(this.rates.of(`${port.name} rxb`, port.received_bytes)),
      transmitted: this.rates.of(`${port.name} tx`, port.transmitted), transmitted_bits: bits(this.rates.of(`${port.name} txb`, port.transmitted_bytes)),
      dropped: this.rates.of(`${port.name} drop`, total(port.dropped)),
    }));
    table(at("ports"), PORT_COLUMNS, ports.map((port, place) => {
      const now = rates[place];
      const lost = port.lost_ring_full + port.lost_no_buffer + port.lost_invalid + port.lost_closed + port.lost_transmit;
      const link = port.state !== "open" ? port.state : port.link_up ? "up" : "down";
      return [
        { text: port.name, title: `${port.driver}, ${port.mac}, ${port.addresses.join(", ")}` }, { text: link, class: link === "up" ? "good-text" : "bad-text" },
        rate(now.received), rate(now.received_bits), rate(now.transmitted), rate(now.transmitted_bits),
        { text: rate(now.dropped), class: now.dropped > 0 ? "bad-text" : null }, loss(lost),
      ];
    }));
    this.ports.add(ports.map((port, place) => [port.name, rates[place].received]));
    const all = (field) => together(ports.map((port, place) => (port.vlan ? null : rates[place][field])));
    return { received: all("received"), bits: all("received_bits"), transmitted: all("transmitted") };
  }

  showWorkers(workers) {
    const there = workers.filter((worker) => worker.state !== "stopped");
    table(at("load"), WORKER_COLUMNS, there.map((worker) => {
      const core = worker.core === null ? "" : `, core ${worker.core}`;
      const state = worker.state === "running" ? "" : `, ${worker.state}`;
      return [
        `${worker.worker}${core}${state}`, { bar: worker.busy_percent, high: 90, text: `${worker.busy_percent.toFixed(0)}${THIN}%` },
        rate(this.rates.of(`worker ${worker.worker}`, worker.received)), whole(worker.held),
      ];
    }));
    say(at("load-note"), "Load: the share of time in turns that found something to do.");
  }

  showDrops(drops) {
    const now = drops.map((drop) => [words(drop.reason), this.rates.of(`drop ${drop.reason}`, drop.total)]);
    const rows = drops.map((drop, place) => [{ text: words(drop.reason), title: drop.explanation }, rate(now[place][1]), whole(drop.total)]);
    table(at("drops"), DROP_COLUMNS, rows.length ? rows : nothing(DROP_COLUMNS, "Nothing was dropped."));
    this.drops.add(now);
    return drops.length ? together(now.map(([, rate]) => rate)) : 0;
  }

  showLedger(ledger, steering, moves) {
    const terms = [
      ["", "received", ledger.received], ["+", "created here", total(ledger.created)], ["=", "transmitted", ledger.transmitted],
      ["+", "delivered", ledger.delivered], ["+", "dropped", total(ledger.dropped)], ["+", "held", ledger.held],
      ["+", "in flight", ledger.in_flight],
    ];
    sum(terms, ledger.missing, moves);
    const waiting = steering.pairs.reduce((all, pair) => all + pair.backlog, 0);
    const handed = steering.pairs.reduce((all, pair) => all + pair.handed, 0);
    const note = "While packets pass, the difference is what passed between reading one counter and the next; at rest it is 0.";
    say(at("ledger-note"), handed ? `Handed on between workers: ${whole(handed)}, of which ${whole(waiting)} wait and are counted as received when they are taken. ${note}` : note);
    table(at("ledger-ports"), LEDGER_COLUMNS, ledger.per_port.map((port) => [
      port.port, whole(port.received), whole(port.created), whole(port.transmitted), whole(port.delivered), whole(port.dropped),
      whole(port.held), whole(port.missing),
    ]));
  }

  showNeighbours(neighbours) {
    const rows = neighbours.slice(0, NEIGHBOURS_SHOWN).map((one) => [
      one.address, one.port, one.mac || "\u2013", { text: one.state, class: stateClass(one.state) }, duration(one.age_s),
    ]);
    table(at("neighbours"), NEIGHBOUR_COLUMNS, rows.length ? rows : nothing(NEIGHBOUR_COLUMNS, "No neighbour is known."));
    moreNeighbours(neighbours.length);
  }
}

function moreNeighbours(number) {
  const more = number > NEIGHBOURS_SHOWN ? `The first ${NEIGHBOURS_SHOWN} of ${whole(number)}; \`manylane show neighbours\` has all. ` : "";
  say(at("neighbours-note"), more + "Every five seconds.");
}

function stateClass(state) {
  const name = state.toLowerCase();
  if (["reachable", "permanent"].includes(name)) return "good-text";
  return ["failed", "incomplete"].includes(name) ? "bad-text" : null;
}

function bits(bytes) {
  return bytes === null ? null : bytes * 8;
}

// The sum: `terms` are [sign, name, number]. A difference at rest is a fault; while packets pass, it is not known to be.
function sum(terms, missing, moves) {
  const state = missing === 0 ? "good" : moves ? "wait" : "bad";
  const all = [...terms, ["", "difference", missing]];
  const host = at("ledger");
  const nodes = count(host, all.length * 2 - 1, (place) => (place % 2 ? made("div", { class: "sign", "aria-hidden": "true" }) : made("div", { class: "term" }, made("b"), made("span"))));
  all.forEach(([sign, name, number], place) => {
    const node = nodes[place * 2];
    if (place > 0) say(nodes[place * 2 - 1], place === all.length - 1 ? "\u21d2" : sign);
    say(node.firstElementChild, whole(number));
    const said = { good: "difference: adds up", wait: "difference: passing", bad: "difference: a fault" }[state];
    say(node.lastElementChild, place === all.length - 1 ? said : name);
    mark(node, "class", place === all.length - 1 ? `term last ${state}` : "term");
  });
  mark(nodes[nodes.length - 1], "id", "difference");
}

function tiles(all) {
  const nodes = count(at("tiles"), all.length, () => made("div", { class: "tile" }, made("b"), made("span")));
  all.forEach(([name, text, more], place) => {
    say(nodes[place].firstElementChild, text);
    mark(nodes[place].firstElementChild, "class", more || null);
    say(nodes[place].lastElementChild, name);
  });
}
