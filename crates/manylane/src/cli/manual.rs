//! Pages of the manual: of each command, from the command line's own help with examples and exit statuses, and of the
//! configuration, from its list of keys.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use manylane_router::config::keys::{self, Kind};

use super::Cli;

/// Writes all pages into `folder`.
pub(super) fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    for (name, page) in pages(&all)? {
        fs::write(folder.join(name), page)?;
    }
    fs::write(folder.join("manylane.toml.5"), configuration())
}

/// The pages of a command and of all that are in it, by file name.
fn pages(command: &clap::Command) -> io::Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        all.extend(pages(inner)?);
    }
    let man = Man::new(command.clone()).manual("manylane");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    // `manylane-config-set` is called `manylane config set`.
    let words = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
    page += &examples(&words);
    page += &statuses(&words);
    page += SEE_ALSO;
    all.push((man.get_filename(), page));
    Ok(all)
}

/// What the command line of a page can be.
fn examples(words: &str) -> String {
    let below = |line: &str| {
        line.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let listed = EXAMPLES.iter().filter(|(line, _)| below(line));
    let mut page = String::from(".SH EXAMPLES\n");
    for (line, about) in listed {
        page += &format!(".TP\n\\fB{}\\fR\n{}\n", escaped(line), escaped(about));
    }
    page
}

fn statuses(words: &str) -> String {
    let mut page = String::from(".SH \"EXIT STATUS\"\n");
    let special = STATUSES.iter().filter(|(command, ..)| *command == words);
    let special = special.map(|&(_, status, meaning)| (status, meaning));
    for (status, meaning) in COMMON.into_iter().chain(special) {
        page += &format!(".TP\n\\fB{status}\\fR\n{}\n", escaped(meaning));
    }
    page
}

/// manylane.toml(5).
fn configuration() -> String {
    let mut page = format!(
        ".TH manylane.toml 5 \"\" \"manylane {}\" manylane\n.SH NAME\nmanylane.toml \\- configuration of manylane run\n",
        env!("CARGO_PKG_VERSION")
    );
    page += &format!(".SH DESCRIPTION\n{}\n", escaped(ABOUT_FILE));
    for table in keys::tables() {
        let header = table.header;
        page += &format!(".SH \"{}\"\n", escaped(header));
        for key in table.keys {
            page += &format!(".TP\n\\fB{}\\fR\n{}\n", escaped(key.name), escaped(key.about));
            if matches!(key.kind, Kind::Table(_)) {
                continue;
            }
            let default = match key.default {
                "" => "required".to_owned(),
                default => format!("default: {default}"),
            };
            page += &format!(".br\nValue: {}; {}\n", escaped(&key.kind.text()), escaped(&default));
            if !key.example.is_empty() {
                let example = format!("{} = {}", key.name, key.example);
                page += &format!(".br\nExample: \\fB{}\\fR\n", escaped(&example));
            }
        }
    }
    let examples = "/usr/share/doc/manylane/examples/router.toml has every key of a router, memory.toml a router in \
                    memory.";
    page += &format!(".SH FILES\n{}\n", escaped(examples));
    page + ".SH \"SEE ALSO\"\nmanylane\\-run(1), manylane\\-config(1)\n"
}

const ABOUT_FILE: &str = "The file is TOML. Brackets name a table; two pairs of brackets, a table that may be there \
    several times. `manylane config check FILE` reports the line, the key and the cure of a mistake, and `manylane config \
    explain KEY` says what is here of one key, and whether it can change while the daemon runs.";

const SEE_ALSO: &str =
    ".SH \"SEE ALSO\"\nmanylane(1), manylane.toml(5); /usr/share/doc/manylane/docs\n";

/// As text of roff(7): backslashes and hyphens as they are, and no line that is a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

const COMMON: [(&str, &str); 3] = [
    ("0", "Done. A reader that closes the pipe early is no failure."),
    ("1", "The command failed when it ran."),
    (
        "2",
        "Wrong usage, or a configuration that is not valid or that this machine's devices do not fit.",
    ),
];

/// Of single commands.
const STATUSES: &[(&str, &str, &str)] = &[
    ("manylane accelerate", "1", "With --dry-run also: an interface would not be accelerated."),
    ("manylane doctor", "1", "Also: something keeps packets of an interface in the kernel."),
    ("manylane demo", "130, 143", "SIGINT, or SIGTERM, ended the demo early."),
    ("manylane run", "1", "Also: forwarding ended well, and a capture file is not whole."),
];

const EXAMPLES: &[(&str, &str)] = &[
    (
        "manylane demo",
        "Show the kernel's router and manylane beside it, while packets pass; as root.",
    ),
    ("manylane demo --memory", "Forward between ports in memory; needs no privilege."),
    ("manylane run router.toml --check", "Check a file against this machine."),
    (
        "manylane run router.toml --user manylane",
        "Forward, and keep no more privileges than that takes.",
    ),
    (
        "manylane accelerate eth0 eth1 --dry-run",
        "Report what would be accelerated, and why the rest would not.",
    ),
    (
        "manylane accelerate eth0 eth1 --listen 127.0.0.1:9176",
        "Accelerate, and serve the API and its page by TCP too.",
    ),
    ("manylane show ports", "The ports and their counters."),
    ("manylane show drops --watch 5", "The reasons of drops, every five seconds."),
    (
        "manylane show why 10.1.0.1 10.2.0.1 -i eth0",
        "Of accelerate: what happens to such a packet, and why.",
    ),
    (
        "manylane show flows --nat --port eth1",
        "Of accelerate: translated connections of an interface, the largest first.",
    ),
    (
        "manylane show flows --kernel --reason rules",
        "The connections that a rule keeps in the kernel, and the rule.",
    ),
    ("manylane top", "Everything, live; `?` lists the keys."),
    ("manylane trace -c 2 udp port 53", "The stages of the next two packets of DNS."),
    (
        "manylane trace -i lan host 10.2.0.9",
        "Of accelerate: what manylane and the kernel do with such a packet, and which rule drops it.",
    ),
    ("manylane config check router.toml", "Check a file against this machine, without a daemon."),
    ("manylane config diff router.toml", "What the file would change, and what wants a restart."),
    ("manylane config apply router.toml --confirm-within 60s", "Apply it, on trial for a minute."),
    ("manylane config confirm", "Keep what is on trial."),
    ("manylane config rollback", "Go back to the configuration before."),
    ("manylane config save", "Write the running configuration to the file of the start."),
    ("manylane config show", "Print the running configuration."),
    ("manylane config explain port.mtu", "What a key means, its values and its default."),
    ("manylane config set workers 2", "Change a setting until the daemon ends."),
    ("manylane neighbour add lan 10.1.0.9 02:00:00:00:00:09", "Set a neighbour by hand."),
    ("manylane neighbour delete lan 10.1.0.9", "Forget a neighbour."),
    ("manylane port add eth2", "Of accelerate: accelerate another interface."),
    ("manylane port remove wan", "Stop and close a port."),
    ("manylane capture -i wan -c 10 host 10.2.0.1", "Print ten packets."),
    ("manylane capture -w ring.pcapng -C 10 -W 3", "Keep the last 30 MB, in three files."),
    ("manylane capture --point drop -v", "Print dropped packets with the reasons."),
    ("manylane doctor eth0 eth1", "What keeps packets of these interfaces in the kernel."),
    (
        "manylane completions bash",
        "Print the completion script, for /usr/share/bash-completion/completions.",
    ),
];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_command_has_a_page_with_examples_that_it_takes_and_statuses() {
        let mut all = Cli::command().disable_help_subcommand(true);
        all.build();
        let pages = pages(&all).unwrap();
        assert!(pages.len() > 20, "{}", pages.len());
        for (name, page) in &pages {
            for section in ["NAME", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(page.contains(&format!(".SH {section}\n")), "{name}: {section}");
            }
            let examples = page.split(".SH EXAMPLES\n").nth(1).unwrap();
            assert!(examples.starts_with(".TP\n\\fBmanylane"), "{name} has no example");
        }
        let named = |name: &str| &pages.iter().find(|(page, _)| page == name).unwrap().1;
        assert!(named("manylane-doctor.1").contains("keeps packets of an interface in the kernel"));
        assert!(named("manylane-show.1").contains("MANYLANE_SOCKET"));
        assert!(named("manylane-show.1").contains("/run/manylane/manylane.sock"));
        for (line, _) in EXAMPLES {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn the_page_of_the_configuration_has_every_key_with_its_default() {
        let page = configuration();
        for table in keys::tables() {
            let section = page.split(&format!(".SH \"{}\"\n", escaped(table.header))).nth(1);
            let section = section.expect(table.header).split(".SH").next().unwrap();
            for key in table.keys {
                let entry = format!(".TP\n\\fB{}\\fR\n{}\n", escaped(key.name), escaped(key.about));
                assert!(section.contains(&entry), "{}{}", table.path(), key.name);
                let has_default = section.contains(&escaped(key.default));
                assert!(
                    has_default || matches!(key.kind, Kind::Table(_)),
                    "{}{}",
                    table.path(),
                    key.name
                );
            }
        }
    }

    #[test]
    fn no_text_is_a_request_of_roff() {
        assert_eq!(escaped(".5 is 'a-b' \\ \"c\""), "\\&.5 is 'a\\-b' \\e \\(dqc\\(dq");
    }
}
