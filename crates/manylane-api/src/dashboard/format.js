// Numbers for people: three figures, a thin space, a unit.

const THIN = "\u2009";

// 1234567 -> "1.23 M". Below 1000 as it is.
function short(number, unit = "") {
  const sign = number < 0 ? "\u2212" : "";
  let value = Math.abs(number);
  const steps = ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  while (value >= 999.5 && step < steps.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  const name = steps[step] + unit;
  return sign + value.toFixed(digits) + (name ? THIN + name : "");
}

// All figures of a counter, in groups of three.
function whole(number) {
  const digits = String(Math.abs(number)).replace(/\B(?=(\d{3})+$)/g, THIN);
  return (number < 0 ? "\u2212" : "") + digits;
}

// A rate, or a dash where it is not known yet.
function rate(number, unit) {
  return number === null ? "\u2013" : short(number, unit);
}

function duration(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([length]) => seconds >= length);
  if (at < 0) return "0" + THIN + "s";
  return parts.slice(at, at + 2).map(([length, name], place) => {
    const left = place === 0 ? seconds : seconds % parts[at][0];
    return [Math.floor(left / length), name];
  }).filter(([count], place) => place === 0 || count > 0).map(([count, name]) => count + THIN + name).join(" ");
}

// Names of the API, for people: "hop_limit_exceeded" -> "hop limit exceeded".
function words(name) {
  return name.replaceAll("_", " ");
}

function total(map) {
  return Object.values(map).reduce((sum, value) => sum + value, 0);
}
