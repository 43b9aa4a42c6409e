//! The words that a completion script requests while a line is typed: ports of the daemon, interfaces, keys. The scripts
//! that clap makes know commands and options only.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;
use manylane_api::{Client, DEFAULT_SOCKET};
use manylane_router::config::keys;
use serde_json::Value;

use super::{SOCKET, print};

/// What `manylane complete` takes.
#[derive(Debug, Args)]
pub(super) struct CompleteOptions {
    /// The words behind `manylane`; the last one is being typed
    #[arg(last = true)]
    words: Vec<String>,
}

/// What the word being typed can be, if a script of clap does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Ports of the daemon.
    Ports,
    /// Interfaces of this network namespace.
    Interfaces,
    /// Keys of the configuration.
    Keys,
    /// Settings of the daemon.
    Settings,
}

/// Prints what the last word can be, a line each. A daemon that does not answer has no ports: that is no complaint.
pub(super) fn complete(CompleteOptions { words }: &CompleteOptions) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let known = match known(&words) {
        Some(Known::Ports) => ports(&words),
        Some(Known::Interfaces) => interfaces(),
        Some(Known::Keys) => {
            let of = |table: &'static keys::Table| {
                table.keys.iter().map(move |key| table.path() + key.name)
            };
            keys::tables().flat_map(of).collect()
        }
        Some(Known::Settings) => settings(&ports(&words)),
        None => Vec::new(),
    };
    print(&known.iter().map(|word| format!("{word}\n")).collect::<String>())
}

fn known(words: &[&str]) -> Option<Known> {
    let (typed, before) = words.split_last()?;
    let (last, command) = (before.last()?, before.first()?);
    if typed.starts_with('-') {
        return None;
    }
    if ["-i", "--interface", "--port"].contains(last) {
        return ["capture", "trace", "show"].contains(command).then_some(Known::Ports);
    }
    // The value of another option.
    if last.starts_with('-') && !FLAGS.contains(last) {
        return None;
    }
    let is_value = |at: usize| at > 0 && before[at - 1] == "--socket";
    let is_plain = |&(at, word): &(usize, &&str)| !word.starts_with('-') && !is_value(at);
    let plain: Vec<&str> =
        before.iter().enumerate().filter(is_plain).map(|(_, word)| *word).collect();
    match plain[..] {
        ["port", "remove"] | ["neighbour" | "neigh", "add" | "delete"] => Some(Known::Ports),
        ["accelerate" | "doctor", ..] | ["port", "add"] => Some(Known::Interfaces),
        ["config", "explain"] => Some(Known::Keys),
        ["config", "set"] => Some(Known::Settings),
        _ => None,
    }
}

/// Options without a value, in front of the words that are known here.
const FLAGS: [&str; 2] = ["--dry-run", "--json"];

/// The ports of the daemon that the line names, or the environment.
fn ports(words: &[&str]) -> Vec<String> {
    let named = words.iter().position(|word| *word == "--socket").and_then(|at| words.get(at + 1));
    let socket = match named {
        Some(named) => PathBuf::from(named),
        None => env::var_os(SOCKET).map_or(DEFAULT_SOCKET.into(), PathBuf::from),
    };
    let client = Client::new(&socket).with_patience(Duration::from_secs(1));
    let ask = |path| client.ask::<Vec<Value>>(path).ok();
    let ports = ask("/v1/ports").or_else(|| ask("/v1/accelerate/ports")).unwrap_or_default();
    let name = |port: &Value| port["name"].as_str().map(str::to_owned);
    ports.iter().filter_map(name).collect()
}

fn interfaces() -> Vec<String> {
    // As the configuration looks for them: of this thread's network namespace.
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names.filter(|name| *name != "lo").map(str::to_owned).collect()
}

fn settings(ports: &[String]) -> Vec<String> {
    let of_port = |port: &String| [format!("port.{port}.steering"), format!("port.{port}.buckets")];
    SETTINGS.iter().map(|&key| key.to_owned()).chain(ports.iter().flat_map(of_port)).collect()
}

const SETTINGS: [&str; 7] = [
    "workers",
    "frames.hot_list_len",
    "steering.netdev_max_backlog",
    "steering.netdev_budget",
    "steering.dev_weight",
    "steering.rebalance",
    "steering.reorder_sample",
];

/// The script of clap, and what has it ask `manylane complete` first.
pub(super) fn script(shell: Shell, clap: &str) -> String {
    match shell {
        Shell::Bash => format!("{clap}{BASH}"),
        Shell::Fish => format!("{clap}{FISH}"),
        // The end calls or registers the function; ours is in front of it.
        Shell::Zsh => match clap.rfind("if [ \"$funcstack[1]\"") {
            Some(end) => {
                let calls = clap[end..].replace("_manylane \"$@\"", "_manylane_known \"$@\"");
                let calls = calls.replace("compdef _manylane ", "compdef _manylane_known ");
                format!("{}{ZSH}{calls}", &clap[..end])
            }
            None => clap.to_owned(),
        },
        _ => clap.to_owned(),
    }
}

const BASH: &str = r#"
_manylane_known() {
    local known
    known=$(manylane complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n $known ]]; then
        COMPREPLY=($(compgen -W "$known" -- "${COMP_WORDS[COMP_CWORD]}"))
    else
        _manylane "$@"
    fi
}
complete -F _manylane_known -o bashdefault -o default manylane
"#;

const ZSH: &str = r#"_manylane_known() {
    local -a known
    known=(${(f)"$(manylane complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( ${#known} )); then compadd -a known; else _manylane "$@"; fi
}

"#;

const FISH: &str = r#"
complete -c manylane -a '(manylane complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_known_by_its_place() {
        let of = |line: &str| known(&line.split(' ').collect::<Vec<_>>());
        for (line, expected) in [
            ("capture -i ", Some(Known::Ports)),
            ("capture -w file -i l", Some(Known::Ports)),
            ("trace --port ", Some(Known::Ports)),
            ("show why 10.1.0.1 10.2.0.1 -i ", Some(Known::Ports)),
            ("show flows --nat --port ", Some(Known::Ports)),
            ("port remove ", Some(Known::Ports)),
            ("port --socket ./s remove ", Some(Known::Ports)),
            ("port add ", Some(Known::Interfaces)),
            ("neighbour add wa", Some(Known::Ports)),
            ("neighbour add wan ", None),
            ("accelerate eth0 ", Some(Known::Interfaces)),
            ("accelerate --dry-run ", Some(Known::Interfaces)),
            ("accelerate eth0 --tier ", None),
            ("accelerate -", None),
            ("doctor ", Some(Known::Interfaces)),
            ("config explain port.m", Some(Known::Keys)),
            ("config set ", Some(Known::Settings)),
            ("config set workers ", None),
            ("show ", None),
            ("", None),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn scripts_ask() {
        for (shell, calls) in [
            (Shell::Bash, "complete -F _manylane_known"),
            (Shell::Zsh, "    _manylane_known \"$@\"\n"),
            (Shell::Zsh, "compdef _manylane_known manylane"),
            (Shell::Fish, "complete -c manylane -a '(manylane complete"),
        ] {
            let script = super::super::generate::completion(shell);
            assert!(script.contains(calls), "{shell}: {calls}");
        }
    }
}
