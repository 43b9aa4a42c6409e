// Flows of `manylane accelerate`: the flow table or else a sample, the connections that the kernel forwards, and why.

const REASON_COLUMNS = [
  { name: "reason", left: true }, { name: "what became of it", left: true }, { name: "connections/s" }, { name: "since the start" }, { name: "why", left: true, words: true },
];
const FLOW_COLUMNS = [
  { name: "source", left: true }, { name: "destination", left: true }, { name: "protocol", left: true }, { name: "ingress", left: true },
  { name: "by", left: true }, { name: "packets/s" }, { name: "bit/s" }, { name: "bytes" }, { name: "NAT", left: true }, { name: "leaves as", left: true },
  { name: "question", left: true },
];
const SUM_COLUMNS = [
  { name: "ingress", left: true }, { name: "by", left: true }, { name: "directions" }, { name: "packets/s" }, { name: "bit/s" }, { name: "packets" }, { name: "bytes" },
];
const SAMPLE_COLUMNS = [
  { name: "flow, by sample", left: true }, { name: "ingress", left: true }, { name: "by", left: true }, { name: "packets of the sample" },
  { name: "question", left: true },
];
const SAMPLE_SUM_COLUMNS = [{ name: "ingress, by sample", left: true }, { name: "by", left: true }, { name: "share", left: true }];
const KERNEL_REASON_COLUMNS = [{ name: "reason", left: true }, { name: "connections" }, { name: "what keeps them in the kernel", left: true, words: true }];
const KERNEL_FLOW_COLUMNS = [
  { name: "source", left: true }, { name: "destination", left: true }, { name: "protocol", left: true }, { name: "way", left: true }, { name: "reason", left: true },
  { name: "what keeps it in the kernel", left: true, words: true }, { name: "packets/s" }, { name: "bit/s" }, { name: "NAT", left: true }, { name: "leaves as", left: true },
  { name: "question", left: true },
];
const NOT_COUNTED = " Conntrack does not count packets, so there are no rates: sysctl -w net.netfilter.nf_conntrack_acct=1 counts those of later connections.";
const ANSWER_COLUMNS = [{ name: "about", left: true }, { name: "answer", left: true, words: true }];
// Of the largest connections some rest: those with the highest rates are found among this many.
const FLOWS_READ = 100;
const FLOWS_SHOWN = 20;
const KERNEL_SHOWN = 20;
const WITHOUT_TOKEN = "The list needs a token; `manylane show flows` and `manylane top` have it, too.";

class Connections {
  constructor() {
    this.rates = new Rates();
    this.kernelRates = new Rates();
    this.kernelAgain = null;
    this.offset = 0;
    this.port = "";
    this.lane = null;
    at("flows-port").onchange = () => this.choose(at("flows-port").value);
    at("kernel-list").onclick = () => this.listKernel(0);
    at("kernel-back").onclick = () => this.listKernel(this.offset - KERNEL_SHOWN);
    at("kernel-next").onclick = () => this.listKernel(this.offset + KERNEL_SHOWN);
    at("why").onsubmit = (event) => {
      event.preventDefault();
      this.ask();
    };
    at("why-protocol").onchange = () => this.showPorts();
    this.showPorts();
  }

  // `since` are rates of the lane's counters, which are read with everything else.
  show(lane, ports, since) {
    at("flows-card").hidden = false;
    options(at("flows-port"), ["", ...ports.map((port) => port.name)], "all");
    options(at("why-interface"), ports.map((port) => port.name));
    if (lane === null) return say(at("flows-status"), "The thread that looks after connections does not answer: it is busy.");
    this.lane = lane;
    const is_needed = this.isNeeded();
    at("kernel-part").hidden = !is_needed;
    say(at("flows-status"), laneStatus(lane, is_needed));
    const rows = [["refused", "stays in the kernel"], ["removed", "left the table"]].flatMap(([field, became]) => lane[field].filter((one) => one.total > 0).map((one) => [
      words(one.reason), became, rate(since.of(`lane ${field} ${one.reason}`, one.total)), whole(one.total), one.explanation,
    ]));
    at("flows-reasons-part").hidden = !is_needed;
    table(at("flows-reasons"), REASON_COLUMNS, rows.length ? rows : nothing(REASON_COLUMNS, "No connection was refused or removed."));
    say(at("flows-list-title"), is_needed ? "The largest connections" : "Flows, by sample");
    this.list(is_needed);
  }

  isNeeded() {
    return this.lane.needed_ipv4 || this.lane.needed_ipv6 || this.lane.used > 0;
  }

  choose(port) {
    this.port = port;
    this.rates.forget();
  }

  // A POST fetches the list, and takes the token.
  async list(is_needed) {
    if (!sessionStorage.getItem(TOKEN)) return say(at("flows-note"), WITHOUT_TOKEN);
    if (this.isListing) return;
    this.isListing = true;
    try {
      if (is_needed) this.showTable(await post("/v1/accelerate/flows/table", { limit: FLOWS_READ, port: this.port || undefined }));
      else this.showSample(await post("/v1/accelerate/flows", null));
    } catch (error) {
      say(at("flows-note"), `The list is missing: ${error.message}`);
    } finally {
      this.isListing = false;
    }
  }

  showTable(page) {
    this.rates.begin(performance.now());
    const rows = page.flows.flatMap((flow) => [
      this.row(flow, flow.original, [flow.source, flow.destination], [flow.translated_source, flow.translated_destination]),
      this.row(flow, flow.reply, [flow.translated_destination, flow.translated_source], [flow.destination, flow.source]),
    ]);
    const order = at("flows-sort").value;
    rows.sort((one, other) => (other[order] ?? -1) - (one[order] ?? -1));
    table(at("flows"), FLOW_COLUMNS, rows.slice(0, FLOWS_SHOWN).map((row) => row.cells));
    table(at("flows-sums"), SUM_COLUMNS, page.sums.map((sum) => {
      const now = (field) => this.rates.of(`sum ${sum.ingress} ${sum.tier} ${field}`, sum[field]);
      return [sum.ingress, by(sum.tier), whole(sum.directions), rate(now("packets")), rate(bits(now("bytes"))), whole(sum.packets), whole(sum.bytes)];
    }));
    const read = page.flows.length < page.total ? ` of the ${whole(page.flows.length)} largest` : "";
    say(at("flows-note"), `${whole(Math.min(rows.length, FLOWS_SHOWN))} directions${read} of ${whole(page.total)} connections, as packets arrive and as they leave.`);
  }

  row(flow, side, [source, destination], leaves) {
    const name = `${flow.id} ${flow.protocol} ${source} ${destination}`;
    const [packets, bytes] = ["packets", "bytes"].map((field) => this.rates.of(`${name} ${field}`, side[field]));
    const is_translated = flow.nat !== "none";
    const cells = [
      source, destination, flow.protocol, side.ingress, by(side.reason ? words(side.reason) : side.tier, side), rate(packets), rate(bits(bytes)), whole(side.bytes),
      is_translated ? flow.nat : "", is_translated ? leaves.join(" > ") : "", this.question([side.ingress, flow.protocol, source, destination]),
    ];
    return { cells, packets, bytes, all: side.bytes };
  }

  showSample(sample) {
    const flows = sample.flows.filter((flow) => !this.port || flow.port === this.port);
    const who = (flow) => (flow.reason ? words(flow.reason) : flow.by);
    table(at("flows"), SAMPLE_COLUMNS, flows.length ? flows.slice(0, FLOWS_SHOWN).map((flow) => {
      const [source, , destination, protocol] = flow.flow.split(" ");
      const is_known = protocol && ["TCP", "UDP"].includes(protocol);
      const question = is_known ? this.question([flow.port, protocol.toLowerCase(), source, destination]) : "";
      return [flow.flow, flow.port, by(who(flow), flow), whole(flow.packets), question];
    }) : nothing(SAMPLE_COLUMNS, "No packet was received within a tenth of a second."));
    const sums = new Map();
    flows.forEach((flow) => {
      const name = `${flow.port}\n${flow.by}`;
      sums.set(name, (sums.get(name) || 0) + flow.packets);
    });
    table(at("flows-sums"), SAMPLE_SUM_COLUMNS, [...sums].map(([name, packets]) => {
      const share = (100 * packets) / sample.packets;
      const [port, tier] = name.split("\n");
      return [port, by(tier), { bar: share, text: `${share.toFixed(0)}${THIN}%` }];
    }));
    say(at("flows-note"), `By sample: ${whole(sample.packets)} packets of a tenth of a second, one packet in ${whole(sample.one_in)}.`);
  }

  // Rates take two answers: the second one is fetched a second later.
  async listKernel(offset, is_again = false) {
    clearTimeout(this.kernelAgain);
    if (!is_again) this.kernelRates.forget();
    if (!sessionStorage.getItem(TOKEN)) return say(at("kernel-note"), WITHOUT_TOKEN);
    at("kernel-list").disabled = true;
    try {
      const reason = at("kernel-reason").value;
      const request = { limit: KERNEL_SHOWN, offset: Math.max(0, offset), port: this.port || undefined, reason: reason || undefined };
      const page = await post("/v1/accelerate/flows/kernel", request);
      this.showKernel(page, !reason);
      if (!is_again && page.flows.some((flow) => flow.counted)) this.kernelAgain = setTimeout(() => this.listKernel(offset, true), 1000);
    } catch (error) {
      say(at("kernel-note"), `The list is missing: ${error.message}`);
    }
    at("kernel-list").disabled = false;
  }

  showKernel(page, has_all_reasons) {
    if (page.trouble) return say(at("kernel-note"), `No connection can be explained: ${page.trouble}.`);
    this.offset = page.offset;
    this.kernelRates.begin(performance.now());
    if (has_all_reasons) options(at("kernel-reason"), ["", ...page.reasons.map((one) => one.reason)], "each");
    table(at("kernel-reasons"), KERNEL_REASON_COLUMNS, page.reasons.map((one) => [words(one.reason), whole(one.total), one.explanation]));
    table(at("kernel"), KERNEL_FLOW_COLUMNS, page.flows.length ? page.flows.map((flow) => this.kernelRow(flow)) : nothing(KERNEL_FLOW_COLUMNS, "The kernel forwards no such connection."));
    const least = page.is_truncated ? "at least " : "";
    const more = page.is_truncated ? " Conntrack has more connections than one request reads or explains: choose a port, or ask about a flow below." : "";
    const first = page.total ? page.offset + 1 : 0;
    say(at("kernel-note"), `${whole(first)} to ${whole(page.offset + page.flows.length)} of ${least}${whole(page.total)}. Of ${whole(page.read)} connections in conntrack, ${whole(page.tracked)} are in the flow table, and ${whole(page.local)} are the router's own.${more}${page.counts ? "" : NOT_COUNTED}`);
    at("kernel-back").disabled = page.offset === 0;
    at("kernel-next").disabled = page.offset + page.flows.length >= page.total;
  }

  kernelRow(flow) {
    const is_translated = flow.nat !== "none";
    const cure = flow.obstacle && flow.obstacle.cure;
    const name = `${flow.id} ${flow.protocol} ${flow.source} ${flow.destination}`;
    const now = (field) => flow.counted && this.kernelRates.of(`${name} ${field}`, flow.counted[`original_${field}`] + flow.counted[`reply_${field}`]);
    return [
      flow.source, flow.destination, flow.protocol, `${flow.ingress || "\u2013"} > ${flow.egress || "\u2013"}`, { text: words(flow.reason), title: flow.state, class: "wait-text" },
      { text: flow.explanation, title: cure && `to free them: ${cure}` }, rate(now("packets")), rate(bits(now("bytes"))), is_translated ? flow.nat : "",
      is_translated ? `${flow.translated_source} > ${flow.translated_destination}` : "",
      flow.ingress && ["tcp", "udp"].includes(flow.protocol) ? this.question([flow.ingress, flow.protocol, flow.source, flow.destination]) : "",
    ];
  }

  // A button that fills the form in, and asks.
  question([ingress, protocol, source, destination]) {
    return {
      text: "why?",
      press: () => {
        const [[from, sport], [to, dport]] = [source, destination].map(ends);
        const values = { interface: ingress, protocol, source: from, sport, destination: to, dport };
        for (const [name, value] of Object.entries(values)) at(`why-${name}`).value = value;
        this.showPorts();
        at("why-title").scrollIntoView();
        this.ask();
      },
    };
  }

  showPorts() {
    const is_any = at("why-protocol").value === "any";
    for (const name of ["sport", "dport"]) {
      at(`why-${name}`).disabled = is_any;
      at(`why-${name}`).required = !is_any;
    }
  }

  async ask() {
    const field = (name) => at(`why-${name}`).value.trim();
    const packet = [field("interface"), field("source"), field("destination")];
    const transport = field("protocol") === "any" ? [] : [field("protocol"), field("sport"), field("dport")];
    const path = [...packet, ...transport].map(encodeURIComponent).join("/");
    try {
      const why = await ask(`/v1/accelerate/why/${path}`);
      table(at("why-answer"), ANSWER_COLUMNS, answer(why));
      say(at("why-note"), `Asked about ${packet[1]} > ${packet[2]} ${transport.join(" ")}, received by ${packet[0]}.`);
    } catch (error) {
      at("why-answer").tBodies[0]?.replaceChildren();
      say(at("why-note"), error instanceof Gone ? "The daemon does not answer." : error.message);
    }
  }
}

function laneStatus(lane, is_needed) {
  if (!lane.capacity) return "manylane was started with `--flows 0`, without a flow table: the flows below are by sample.";
  const families = [lane.needed_ipv4 && "IPv4", lane.needed_ipv6 && "IPv6"].filter(Boolean);
  if (!is_needed) return "No rule filters by connection or translates, so no packet needs a connection: the flows below are by sample.";
  const trouble = lane.trouble ? ` Connections cannot be followed: ${lane.trouble}.` : lane.is_reviewing ? " All entries are being reviewed." : "";
  return `${families.join(" and ") || "No"} packets are forwarded by connection. The table has ${whole(lane.used)} of ${whole(lane.capacity)} entries in use; ${whole(lane.admitted)} connections entered, ${whole(lane.candidates)} proposed.${trouble}`;
}

// The forwarder, marked if it is the kernel.
function by(name, { reason, explanation } = {}) {
  return { text: name, title: explanation, class: reason || name === "kernel" ? "wait-text" : null };
}

// "[2001:db8::1]:443" -> ["2001:db8::1", "443"].
function ends(end) {
  const colon = end.lastIndexOf(":");
  return [end.slice(0, colon).replace(/[[\]]/g, ""), end.slice(colon + 1)];
}

// The answer about a flow, line by line.
function answer(why) {
  const rows = [["verdict", why.forwarded ? `forwarded by ${why.egress} to ${why.to}` : `left to the kernel (${why.verdict}): ${why.explanation}`]];
  if (why.mirror) rows.push(["route", why.mirror.reason]);
  const flow = why.flow;
  if (flow) {
    if (flow.state !== "class") rows.push(["connection", flow.state === "forwarded" ? "forwarded by manylane" : `${flow.state}: ${words(flow.reason)}`]);
    if (flow.explanation) rows.push(["because", flow.explanation]);
    if (flow.entry) rows.push(...entry(flow.entry));
    if (flow.connection) rows.push(["conntrack", flow.connection]);
    for (const rule of flow.rules) {
      const name = `${rule.ingress} > ${rule.egress}, ${rule.protocol}`;
      rows.push([name, rule.obstacle ? `${words(rule.answer)}: ${rule.obstacle.text}` : rule.answer === "accept" ? "accepted" : words(rule.answer)]);
      if (rule.obstacle && rule.obstacle.cure) rows.push(["to free them", rule.obstacle.cure]);
    }
  }
  return [...rows, ...why.reasons.map((reason) => ["gate", `${reason.what}: ${reason.why}`])];
}

function entry(one) {
  const nat = one.nat === "none" ? "" : `, ${one.nat}: leaves as ${one.translated_source} > ${one.translated_destination}`;
  const side = ([name, is]) => [name, `${is.ingress} > ${is.egress}, ${is.reason ? words(is.reason) : is.tier}: ${whole(is.packets)} packets, ${short(is.bytes, "B")}; ${whole(is.passed)} packets left to the kernel`];
  return [["entry", `${one.protocol} ${one.source} > ${one.destination}${nat}`], ...[["original", one.original], ["reply", one.reply]].map(side)];
}
