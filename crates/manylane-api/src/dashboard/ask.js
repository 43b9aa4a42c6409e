// The API: what it answers, and what that grew by.

const TOKEN = "manylane-token";
const PATIENCE_MS = 4000;

class Refused extends Error {
  constructor(status, error, help) {
    super(help ? `${error}; ${help}` : error);
    this.status = status;
  }
}

// No answer, or a late one.
class Gone extends Error {}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function ask(path) {
  const options = { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) };
  const answer = await fetch(path, options).catch(gone);
  if (!answer.ok) throw await refusal(answer);
  return answer.json().catch(gone);
}

// Requests what takes POST: without a token the daemon refuses that by TCP.
async function post(path, request) {
  const options = { method: "POST", headers: headers(), body: JSON.stringify(request), signal: AbortSignal.timeout(PATIENCE_MS) };
  const answer = await fetch(path, options).catch(gone);
  if (!answer.ok) throw await refusal(answer);
  return answer.json().catch(gone);
}

// What browsers say of it differs, and says less than that.
function gone() {
  throw new Gone();
}

async function refusal(answer) {
  const told = await answer.json().catch(() => ({}));
  return new Refused(answer.status, told.error || `the daemon answers ${answer.status}`, told.help);
}

// What counters grew by in a second, since the answers before. A counter that is new, or smaller, has no rate yet.
class Rates {
  constructor() {
    this.before = new Map();
    this.now = new Map();
    this.seconds = 0;
  }

  // A new round of answers, requested at `time_ms`.
  begin(time_ms) {
    this.seconds = this.time_ms === undefined ? 0 : (time_ms - this.time_ms) / 1000;
    this.time_ms = time_ms;
    this.before = this.now;
    this.now = new Map();
  }

  of(name, value) {
    this.now.set(name, value);
    const before = this.before.get(name);
    if (before === undefined || value < before || this.seconds <= 0) return null;
    return (value - before) / this.seconds;
  }

  forget() {
    this.now = new Map();
    this.time_ms = undefined;
  }
}

// The sum of rates, as far as they are known.
function together(rates) {
  const known = rates.filter((rate) => rate !== null);
  return known.length ? known.reduce((sum, rate) => sum + rate, 0) : null;
}

// Requests a file and offers it as a download.
async function download(path, request, name) {
  const answer = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(request) }).catch(gone);
  if (!answer.ok) throw await refusal(answer);
  const file = await answer.blob().catch(gone);
  const link = made("a", { href: URL.createObjectURL(file), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  return file.size;
}
