//! Another configuration while packets pass: all of it or nothing, on trial, saved, and there again after a restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use manylane_api::{Client, ConfigApplied, ConfigRequest, ConfigStatus, PortStatus, RouteStatus};
use manylane_lab::scenario::{Running, all_answered, lab};
use manylane_lab::{
    Host, Lab, LabOptions, RouterOptions, SERVER_V4, SERVER_V6, Steady, SteadyOptions, ping, tool,
};

const MANYLANE: &str = env!("CARGO_BIN_EXE_manylane");

/// Networks behind the server that only the other configuration knows, with an address in each.
const BEYOND: [(&str, &str); 2] =
    [("10.50.0.0/16", "10.50.0.1"), ("2001:db8:50::/48", "2001:db8:50::1")];

#[test]
fn routes_come_and_go_under_traffic_and_nothing_is_lost() {
    let Some((lab, running)) = start() else { return };
    let client = running.client();
    let streams = [SERVER_V4, SERVER_V6].map(|destination| {
        Steady::start(&lab.client, &lab.server, SteadyOptions::to(destination)).expect("it sends")
    });
    streams.iter().for_each(|stream| _ = stream.arrives("before"));
    let marks = streams.each_ref().map(Steady::mark);
    for round in 0..20 {
        for (text, there) in [(other(), true), (plain(), false)] {
            let applied =
                apply(&client, &text, None).unwrap_or_else(|error| panic!("{round}: {error}"));
            assert!(applied.changes.iter().all(|change| change.live), "{applied:?}");
            assert_eq!(has_routes(&client), [there; 3], "{round}");
            if round == 0 && there {
                for (_, address) in BEYOND {
                    all_answered(&lab.client, address.parse().expect("it is one"), 56);
                }
            }
            streams.iter().for_each(|stream| _ = stream.arrives("meanwhile"));
        }
    }
    for (stream, mark) in streams.iter().zip(marks) {
        let seen = stream.arrives("afterwards");
        let arrivals = stream.arrivals();
        assert_eq!(stream.missing(mark..seen), 0, "{arrivals:?}");
        assert_eq!((arrivals.late, arrivals.twice), (0, 0));
    }
    drop(streams);
    ends_well(running);
}

#[test]
fn what_is_refused_changes_nothing() {
    let Some((_lab, running)) = start() else { return };
    let client = running.client();
    // Our own link-local address, which the checker does not know: found when all else is done.
    let ports: Vec<PortStatus> = client.ask("/v1/ports").expect("it answers");
    let link_local = ports[1].addresses.iter().find(|address| address.starts_with("fe80"));
    let link_local = link_local.and_then(|address| address.split('/').next());
    let link_local = link_local.expect("each port has one");
    let last = format!(
        "[[route]]\nprefix = \"2001:db8:66::/48\"\nvia = \"{link_local}\"\nport = \"wan\"\n"
    );
    let error = apply(&client, &(other() + &last), None).expect_err("it is our own address");
    assert!(error.contains("2001:db8:66::/48") && error.contains("own address"), "{error}");
    assert!(error.contains("nothing has changed"), "{error}");
    assert_eq!(has_routes(&client), [false; 3]);
    let status: ConfigStatus = client.ask("/v1/config").expect("it answers");
    assert_eq!((status.text, status.can_roll_back), (plain(), false));

    // What wants a restart is said before anything is done.
    let text = other().replace("name = \"wan\"", "name = \"wan\"\nmtu = 1400");
    let error = apply(&client, &text, None).expect_err("the MTU cannot change");
    assert!(error.contains("port.wan.mtu") && error.contains("start the daemon anew"), "{error}");
    assert_eq!(has_routes(&client), [false; 3]);

    // What is not valid is named with its line.
    let error = apply(&client, &plain().replace("count = 1", "cuont = 1"), None);
    let error = error.expect_err("there is no such key");
    assert!(error.contains("did you mean `count`") && error.contains("-->"), "{error}");

    let error = command(&running, &["rollback"]);
    assert!(!error.status.success());
    assert!(String::from_utf8_lossy(&error.stderr).contains("no configuration to go back to"));
    ends_well(running);
}

#[test]
fn a_trial_that_nobody_confirms_goes_back() {
    let Some((lab, mut running)) = start() else { return };
    let client = running.client();
    apply(&client, &other(), Some(1.0)).expect("it can be done");
    assert_eq!(has_routes(&client), [true; 3]);
    let error = apply(&client, &plain(), None).expect_err("one is on trial");
    assert!(error.contains("on trial"), "{error}");
    running.wait_for("was not confirmed");
    assert_eq!(has_routes(&client), [false; 3]);
    for (_, address) in BEYOND {
        let answer = ping(&lab.client, address.parse().expect("it is one"), 56, 1);
        assert_eq!(answer.expect("it can ask").received, 0);
    }
    // Confirmed, it stays; and an operator can go back by hand.
    let file = written("trial", &other());
    let said = told(&running, &["apply", &file, "--confirm-within", "60s"]);
    assert!(
        said.contains("route.10.50.0.0/16: nothing -> {") && said.contains("on trial"),
        "{said}"
    );
    let refused = command(&running, &["save"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("confirm"), "{refused:?}");
    told(&running, &["confirm"]);
    assert_eq!(has_routes(&client), [true; 3]);
    told(&running, &["rollback"]);
    assert_eq!(has_routes(&client), [false; 3]);
    fs::remove_file(file).expect("it is ours");
    ends_well(running);
}

#[test]
fn what_was_saved_is_there_after_a_restart() {
    let Some((lab, running)) = start() else { return };
    let client = running.client();
    let file = written("saved", &plain());
    fs::write(&file, other()).expect("the folder is ours");
    let said = told(&running, &["diff", &file]);
    assert!(said.contains("5 changes") && !said.contains("restart"), "{said}");
    told(&running, &["apply", &file]);
    assert_eq!(told(&running, &["show"]), other());
    let saved = written("again", "");
    told(&running, &["save", &saved]);
    assert_eq!(fs::read_to_string(&saved).expect("it is there"), other());
    assert_eq!(told(&running, &["diff", &saved]), "nothing to change\n");
    // Without a name, to the file that it was started with.
    told(&running, &["save"]);
    let status: ConfigStatus = client.ask("/v1/config").expect("it answers");
    let text = fs::read_to_string(&status.file).expect("it is there");
    assert_eq!(text, other());
    ends_well(running);
    let options = RouterOptions { more: more(), ..RouterOptions::default() };
    assert_eq!(options.text(), text, "the next one is started with what was saved");
    let running = Running::start(&lab, MANYLANE, &options);
    assert_eq!(has_routes(&running.client()), [true; 3]);
    for (_, address) in BEYOND {
        all_answered(&lab.client, address.parse().expect("it is one"), 56);
    }
    ends_well(running);
    [file, saved].iter().for_each(|file| fs::remove_file(file).expect("it is ours"));
}

fn start() -> Option<(Lab, Running)> {
    let lab = lab(LabOptions::default())?;
    for (_, address) in BEYOND {
        let bits = if address.contains(':') { 128 } else { 32 };
        configure(&lab.server, &format!("ip address add {address}/{bits} dev lo"));
    }
    configure(&lab.server, "ip link set lo up");
    let running = Running::start(&lab, MANYLANE, &RouterOptions::default());
    for destination in [SERVER_V4, SERVER_V6] {
        all_answered(&lab.client, destination, 56);
    }
    Some((lab, running))
}

fn configure(host: &Host, line: &str) {
    tool(host, line).unwrap_or_else(|error| panic!("{line}: {error}"));
}

/// What it is started with.
fn plain() -> String {
    RouterOptions::default().text()
}

/// That configuration with routes of both families, one by two next hops, a neighbour, and another limit.
fn other() -> String {
    RouterOptions { more: more(), ..RouterOptions::default() }.text()
}

fn more() -> String {
    let route = |(prefix, _), via| format!("[[route]]\nprefix = \"{prefix}\"\nvia = \"{via}\"\n");
    let [v4, v6] = BEYOND;
    format!(
        "[steering]\nnetdev_budget = 200\n{}{}\
         [[route]]\nprefix = \"10.60.0.0/16\"\nvia = [\"10.2.0.1\", \"10.2.0.7\"]\n\
         [[neighbour.static]]\nport = \"wan\"\naddress = \"10.2.0.7\"\nmac = \"02:00:00:00:00:77\"\n",
        route(v4, SERVER_V4),
        route(v6, SERVER_V6),
    )
}

/// Which of the other configuration's routes are there.
fn has_routes(client: &Client) -> [bool; 3] {
    let routes: Vec<RouteStatus> = client.ask("/v1/routes").expect("it answers");
    [BEYOND[0].0, BEYOND[1].0, "10.60.0.0/16"]
        .map(|prefix| routes.iter().any(|route| route.prefix == prefix))
}

fn apply(
    client: &Client,
    text: &str,
    confirm_within_s: Option<f64>,
) -> Result<ConfigApplied, String> {
    let request = ConfigRequest { text: text.into(), name: None, confirm_within_s };
    let applied = client.post("/v1/config/apply", &request);
    applied.map_err(|error| error.to_string())
}

fn command(running: &Running, arguments: &[&str]) -> Output {
    let mut command = Command::new(MANYLANE);
    command.arg("config").args(arguments).arg("--socket").arg(running.socket());
    command.output().expect("the program is there")
}

fn told(running: &Running, arguments: &[&str]) -> String {
    let output = command(running, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn written(name: &str, text: &str) -> String {
    let name = format!("manylane-config-{name}-{}.toml", std::process::id());
    let file: PathBuf = std::env::temp_dir().join(Path::new(&name));
    fs::write(&file, text).expect("the temporary folder can be written");
    file.display().to_string()
}

fn ends_well(running: Running) {
    running.wait_for_balance();
    let (status, said) = running.terminate();
    assert!(status.success() && said.contains("missing 0"), "{status}: {said}");
}
