// What `manylane accelerate` shows.

const ACCELERATED_COLUMNS = [
  { name: "port", left: true }, { name: "link", left: true }, { name: "tier", left: true }, { name: "seen, packets/s" }, { name: "forwarded, packets/s" },
  { name: "bit/s" }, { name: "left to the kernel, packets/s" }, { name: "sent, packets/s" }, { name: "lost behind us" },
];
const TIER_COLUMNS = [{ name: "tier", left: true }, { name: "share", left: true }, { name: "packets/s" }, { name: "since the start" }];
const PASSED_COLUMNS = [{ name: "reason", left: true }, { name: "by", left: true }, { name: "packets/s" }, { name: "since the start" }];
const KERNEL_COLUMNS = [
  { name: "address", left: true }, { name: "interface", left: true }, { name: "link-layer address", left: true },
  { name: "state", left: true }, { name: "used by us" },
];
const WHY_COLUMNS = [{ name: "port", left: true }, { name: "found", left: true, words: true }, { name: "what changes it", left: true, words: true }];

const SILENT = "The mirror's thread does not answer: it is busy. What it knows is shown when it does.";

// Ports without our program now: nothing counts their packets.
const unseen = (ledger) => {
  const names = Object.entries(ledger.unseen).filter(([, time]) => time.for_ms !== null).map(([name]) => name);
  return names.length ? ` No program looks at ${names.join(", ")} now: what passes there is counted nowhere.` : "";
};

class Accelerator {
  constructor() {
    this.rates = new Rates();
    this.connections = new Connections();
    this.ports = new Chart(at("ports-chart"), "forwarded by ingress port, packets/s", "");
    this.drops = new Chart(at("drops-chart"), "left to the kernel or lost, by reason, packets/s", "");
    this.round = 0;
    say(at("load-title"), "Tiers");
    say(at("drops-title"), "Left to the kernel, and lost");
    say(at("steering-title"), "Mirror of the kernel");
    say(at("rings-title"), "Why ports are not in a faster tier");
    at("ledger-more").hidden = true;
    say(at("capture-note"), "A pcapng file of what the kernel got and what workers dropped, with the reason in each packet's comment.");
  }

  paths() {
    const often = ["accelerate/ports", "accelerate/drops", "accelerate/ledger", "accelerate/mirror", "accelerate/lane"];
    return this.round++ % 5 === 0 ? [...often, "accelerate/neighbours"] : often;
  }

  show(answers) {
    const port = this.showPorts(answers["accelerate/ports"]);
    const ledger = answers["accelerate/ledger"];
    this.showTiers(ledger);
    const passed = this.showDrops(answers["accelerate/drops"]);
    this.showLedger(ledger, port.seen > 0);
    this.showMirror(answers["accelerate/mirror"], answers["accelerate/ports"]);
    this.connections.show(answers["accelerate/lane"], answers["accelerate/ports"], this.rates);
    if (answers["accelerate/neighbours"] === null) say(at("neighbours-note"), SILENT);
    if (answers["accelerate/neighbours"]) this.showNeighbours(answers["accelerate/neighbours"]);
    tiles([
      ["seen, packets/s", rate(port.seen)], ["forwarded, packets/s", rate(port.forwarded)], ["forwarded", rate(port.bits, "bit/s")],
      ["left to the kernel, packets/s", rate(passed)],
    ]);
  }

  showPorts(ports) {
    const rates = ports.map((port) => ({
      seen: this.rates.of(`${port.name} seen`, port.seen), forwarded: this.rates.of(`${port.name} fwd`, port.forwarded),
      bits: bits(this.rates.of(`${port.name} fwdb`, port.forwarded_bytes)), passed: this.rates.of(`${port.name} pass`, total(port.passed)),
      sent: this.rates.of(`${port.name} sent`, port.sent),
    }));
    table(at("ports"), ACCELERATED_COLUMNS, ports.map((port, place) => {
      const now = rates[place];
      return [
        { text: port.name, title: port.mac }, { text: port.link_up ? "up" : "down", class: port.link_up ? "good-text" : "bad-text" },
        { text: port.tier, class: port.tier === "kernel" ? "wait-text" : null }, rate(now.seen), rate(now.forwarded), rate(now.bits), rate(now.passed),
        rate(now.sent), loss(port.device_dropped + port.queue_dropped),
      ];
    }));
    this.ports.add(ports.map((port, place) => [port.name, rates[place].forwarded]));
    const all = (field) => together(rates.map((now) => now[field]));
    return { seen: all("seen"), forwarded: all("forwarded"), bits: all("bits") };
  }

  showTiers(ledger) {
    const tiers = Object.entries(ledger.tiers).map(([name, packets]) => [name, packets, this.rates.of(`tier ${name}`, packets)]);
    const passed = total(ledger.passed);
    tiers.push(["kernel (left to it)", passed, this.rates.of("tier kernel", passed)]);
    const all = together(tiers.map(([, , now]) => now));
    table(at("load"), TIER_COLUMNS, tiers.map(([name, packets, now]) => {
      const share = all ? (100 * now) / all : 0;
      return [name, { bar: share, text: `${share.toFixed(0)}${THIN}%` }, rate(now), whole(packets)];
    }));
    say(at("load-note"), "Who forwards: of what came in during the last second.");
  }

  showDrops(drops) {
    const some = drops.filter((drop) => drop.total > 0);
    const now = some.map((drop) => [words(drop.reason), this.rates.of(`drop ${drop.by} ${drop.reason}`, drop.total)]);
    const rows = some.map((drop, place) => [
      { text: words(drop.reason), title: drop.explanation }, { text: drop.by, class: drop.by === "passed" ? null : "bad-text" }, rate(now[place][1]), whole(drop.total),
    ]);
    table(at("drops"), PASSED_COLUMNS, rows.length ? rows : nothing(PASSED_COLUMNS, "Of what the programs saw, nothing was left to the kernel or lost."));
    this.drops.add(now);
    return some.length ? together(now.filter((_, place) => some[place].by === "passed").map(([, rate]) => rate)) : 0;
  }

  showLedger(ledger, moves) {
    const terms = [
      ["", "seen", ledger.seen], ["=", "forwarded", ledger.forwarded], ["+", "left to the kernel", total(ledger.passed)],
      ["+", "dropped by workers", total(ledger.dropped)], ["+", "in workers' rings", ledger.queued], ["", "sent, of the forwarded", ledger.sent],
    ];
    const entered = ledger.seen - ledger.forwarded - total(ledger.passed) - total(ledger.dropped) - ledger.queued;
    sum(terms, Math.abs(entered) > Math.abs(ledger.missing) ? entered : ledger.missing, moves);
    say(at("ledger-note"), `What came in adds up, and forwarded is sent. Behind us, devices lost ${whole(ledger.device_dropped)} and queueing disciplines ${whole(ledger.queue_dropped)} packets, ours or the kernel's.${unseen(ledger)}`);
  }

  showMirror(answer, ports) {
    const node = at("steering").firstElementChild || at("steering").appendChild(made("p"));
    this.showReasons(ports);
    if (answer === null) {
      mark(node, "class", "bad-text");
      return say(node, SILENT);
    }
    const { lease, mirror, verified_ms_ago, overruns } = answer;
    const state = lease.holds ? "The lease holds: programs forward" : "The lease has lapsed: the kernel forwards everything";
    say(node, `${state}. The tables are ${lease.tables}, known to be so ${verified_ms_ago}${THIN}ms ago; ${whole(mirror.ipv4.routes)} IPv4 and ${whole(mirror.ipv6.routes)} IPv6 routes; ${whole(overruns)} times events of the kernel were lost.`);
    mark(node, "class", lease.holds ? "good-text" : "bad-text");
  }

  showReasons(ports) {
    const found = ports.flatMap((port) => [...port.reasons, ...port.tier_reasons].map((reason) => [
      port.name, { text: reason.what, title: reason.why }, reason.command || "\u2013",
    ]));
    table(at("rings"), WHY_COLUMNS, found.length ? found : nothing(WHY_COLUMNS, "Nothing is in the way."));
  }

  showNeighbours(neighbours) {
    const rows = neighbours.slice(0, NEIGHBOURS_SHOWN).map((one) => [
      one.address, one.interface, one.mac || "\u2013", { text: one.state, class: stateClass(one.state) }, one.used ? "yes" : "no",
    ]);
    table(at("neighbours"), KERNEL_COLUMNS, rows.length ? rows : nothing(KERNEL_COLUMNS, "The kernel knows no neighbour."));
    moreNeighbours(neighbours.length);
  }
}
