use std::fs;
use std::process;
use std::sync::Arc;
use std::thread;

use serde::de::DeserializeOwned;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::accelerate::*;
use crate::sample::accelerate::Sample;
use crate::server::accelerate::serve;
use crate::{Client, ClientError, Setting, Socket};

#[test]
fn every_answer_comes_back_as_it_was_given() {
    with_client(|client| {
        fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(
            client: &Client,
            path: &str,
            is: T,
        ) {
            assert_eq!(client.ask::<T>(path).unwrap_or_else(|error| panic!("{path}: {error}")), is);
        }
        let below = |path: &str| format!("/v1/accelerate/{path}");
        same(client, "/v1/daemon", Sample.daemon());
        same(client, &below("ports"), Sample.ports());
        same(client, &below("drops"), Sample.drops());
        same(client, &below("ledger"), Sample.ledger());
        let flows: AcceleratedFlows = client.post(&below("flows"), &()).unwrap();
        assert_eq!(flows, Sample.flows().unwrap());
        same(client, &below("config"), Sample.config());
        same(client, &below("mirror"), Sample.mirror().unwrap());
        let diff: Vec<String> = client.post(&below("mirror/diff"), &()).unwrap();
        assert_eq!(diff, Sample.diff().unwrap());
        same(client, &below("lane"), Sample.lane().unwrap());
        same(client, &below("export"), Sample.export());
        let request = TrackedFlowsRequest {
            protocol: Some(TransportProtocol::Tcp),
            limit: 1,
            ..TrackedFlowsRequest::default()
        };
        let page: TrackedFlows = client.post(&below("flows/table"), &request).unwrap();
        assert_eq!((page.total, &page), (1, &Sample.tracked_flows(&request).unwrap()));
        let request = KernelFlowsRequest {
            reason: Some("rules".into()),
            limit: 5,
            ..KernelFlowsRequest::default()
        };
        let page: KernelFlows = client.post(&below("flows/kernel"), &request).unwrap();
        assert_eq!((page.total, &page), (1, &Sample.kernel_flows(&request).unwrap()));
        let diff: TrackedFlowsDiff = client.post(&below("flows/diff"), &()).unwrap();
        assert_eq!(diff, Sample.tracked_flows_diff().unwrap());
        same(client, &below("routes"), Sample.routes().unwrap());
        let question = WhyQuestion {
            source: "10.1.0.1".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
            interface: "lan".into(),
            transport: None,
        };
        same(client, &question.path(), Sample.why(&question).unwrap());
        same(client, &below("why/lan/10.1.0.1/2001%3Adb8%3A%3A1"), Sample.why(&question).unwrap());
        let transport = Some((TransportProtocol::Udp, [4000, 53]));
        let question = WhyQuestion { transport, ..question };
        let path = below("why/lan/10.1.0.1/2001%3Adb8%3A%3A1/udp/4000/53");
        same(client, &path, Sample.why(&question).unwrap());
        assert_eq!(question.path(), path);
    });
}

#[test]
fn what_cannot_be_answered_is_told_with_help() {
    with_client(|client| {
        let refused = |path: &str| client.ask_text(path).expect_err(path).to_string();
        for (path, said) in [
            ("/v1/accelerate/neighbours", "the daemon refused: it is silent; wait"),
            ("/v1/accelerate/why/wan/10.1.0.1/10.2.0.1", "wan is not accelerated; name lan"),
            ("/v1/accelerate/why/lan/here/10.2.0.1", "here is no IP address"),
            ("/v1/accelerate/why/lan/10.1.0.1/10.2.0.1/icmp/1/2", "neither tcp nor udp"),
            ("/v1/accelerate/why/lan/10.1.0.1/10.2.0.1/tcp/1/65536", "65536 is no port"),
            ("/v1/accelerate/worker", "`manylane accelerate` has no /v1/accelerate/worker"),
            ("/v1/ports", "`manylane accelerate` has no /v1/ports"),
        ] {
            let refusal = refused(path);
            assert!(refusal.contains(said), "{path}: {refusal}");
        }
    });
}

/// Each request of a command that only `manylane run` can do.
#[test]
fn what_only_run_does_is_answered_in_the_words_of_an_operator() {
    with_client(|client| {
        let get = |path: &str| client.ask_text(path).map(drop);
        let post = |path: &str| client.post_text(path, &()).map(drop);
        for (answer, instead) in [
            (get("/v1/accelerate/workers"), "`manylane show ports`"),
            (get("/v1/accelerate/addresses"), "`ip address`"),
            (get("/v1/accelerate/frames"), "`manylane show ledger`"),
            (get("/v1/accelerate/steering"), "`ethtool -x IF`"),
            (get("/v1/accelerate/sockets"), "`manylane capture`"),
            (get("/v1/config"), "`manylane show config`"),
            (post("/v1/config/diff"), "`manylane show config`"),
            (post("/v1/config/apply"), "`manylane show config`"),
            (post("/v1/trace"), "`manylane show why SOURCE DESTINATION -i IF`"),
            (client.put::<Setting>("/v1/neighbours/lan/10.1.0.9", "").map(drop), "`ip neighbour`"),
            (client.delete::<Setting>("/v1/ports/lan").map(drop), "port.IF.tier kernel"),
        ] {
            let error = answer.expect_err("it is the other daemon");
            assert!(matches!(error, ClientError::WrongDaemon(_)), "{error}");
            let said = error.to_string();
            assert!(said.starts_with("this is `manylane accelerate`: "), "{said}");
            assert!(said.contains(instead) && !said.contains("/v1"), "{said}");
        }
    });
}

fn with_client(asks: impl FnOnce(&Client)) {
    let folder = std::env::temp_dir().join(format!(
        "manylane-accelerate-{}-{:?}",
        process::id(),
        thread::current().id()
    ));
    let path = folder.join("api.sock");
    let socket = Socket::bind(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async move { stopped.await.unwrap_or_default() };
        runtime.block_on(serve(socket, Arc::new(Sample), stopped)).unwrap();
    });
    asks(&Client::new(&path));
    drop(stop);
    server.join().unwrap();
    let _ = fs::remove_dir_all(&folder);
}
