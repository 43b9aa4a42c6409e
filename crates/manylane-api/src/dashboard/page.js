// Once a second: ask, and show.

const INTERVAL_MS = 1000;

const page = { view: null, kind: null, pid: null, heard: null, timer: null, is_asking: false };

async function turn() {
  clearTimeout(page.timer);
  if (page.is_asking) return;
  page.is_asking = true;
  const begun = performance.now();
  const token = sessionStorage.getItem(TOKEN);
  try {
    const daemon = await ask("/v1/daemon");
    greet(daemon);
    const paths = page.view.paths();
    page.view.rates.begin(performance.now());
    const answers = await Promise.all(paths.map((path) => ask(`/v1/${path}`).catch(unlessBusy)));
    page.view.show(Object.fromEntries(paths.map((path, place) => [path, answers[place]])));
    heard();
  } catch (error) {
    const is_unknown = error instanceof Refused && error.status === 401;
    if (!is_unknown) silent(error);
    // The operator may have entered another token meanwhile; the next request carries it.
    else if (sessionStorage.getItem(TOKEN) === token) return login();
  } finally {
    page.is_asking = false;
  }
  page.timer = setTimeout(turn, Math.max(100, INTERVAL_MS - (performance.now() - begun)));
}

// The mirror's thread may be busy (503): the page shows all other answers.
function unlessBusy(error) {
  if (error instanceof Refused && error.status === 503) return null;
  throw error;
}

function greet(daemon) {
  const kind = daemon.kind === "accelerate" ? "accelerate" : "run";
  if (page.pid !== daemon.pid) {
    // Another kind has another page.
    if (page.kind && page.kind !== kind) location.reload();
    page.kind = kind;
    page.view = kind === "run" ? new Forwarder() : new Accelerator();
    page.pid = daemon.pid;
  }
  say(at("kind"), kind);
  say(at("facts"), `version ${daemon.version}, process ${daemon.pid}, up ${duration(daemon.uptime_s)}`);
  document.title = `manylane ${kind} on ${location.host}`;
}

function heard() {
  page.heard = new Date();
  state("good", "live");
  at("alert").hidden = true;
  at("login").hidden = true;
  at("main").hidden = false;
  document.body.classList.remove("gone");
}

// The daemon does not answer, or wrongly. The page keeps the last figures and marks them as old.
function silent(error) {
  const since = page.heard ? `The numbers below are of ${page.heard.toLocaleTimeString()}.` : "";
  if (page.view) page.view.rates.forget();
  const [chip, what] = error instanceof Gone ? ["no answer", "The daemon does not answer"]
    : error instanceof Refused ? ["refused", `The daemon refuses: ${error.message}`] : ["failed", `This page failed: ${error.message}`];
  state("bad", chip);
  say(at("alert"), `${what}. ${since} Asking again every second.`);
  at("alert").hidden = false;
  document.body.classList.add("gone");
}

function state(kind, text) {
  at("status").className = `chip ${kind}`;
  say(at("status"), text);
}

function login() {
  const is_wrong = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  state("wait", "token wanted");
  say(at("alert"), "That is not the daemon's token.");
  at("alert").hidden = !is_wrong;
  at("main").hidden = true;
  at("login").hidden = false;
  at("token").value = "";
  at("token").focus();
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  turn();
});

at("capture").addEventListener("click", async () => {
  const button = at("capture");
  button.disabled = true;
  say(at("capture-note"), "Capturing for 5 seconds\u2026");
  try {
    const time = new Date().toISOString().replace(/\..*/, "").replaceAll(":", "");
    const size = await download("/v1/capture/drops", { seconds: 5 }, `manylane-drops-${time}.pcapng`);
    say(at("capture-note"), `Saved ${short(size, "B")}.`);
  } catch (error) {
    say(at("capture-note"), error instanceof Gone ? "No capture: the daemon does not answer." : `No capture: ${error.message}.`);
  }
  button.disabled = false;
});

turn();
