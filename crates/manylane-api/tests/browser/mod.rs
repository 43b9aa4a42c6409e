//! A headless Chromium, driven by the DevTools protocol over two pipes, for tests of the dashboard.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs};

use serde_json::{Value, json};

/// A browser with one tab. Dropping this ends the browser.
pub struct Browser {
    folder: PathBuf,
    process: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    number: u64,
    session: Value,
    /// Events that the browser sent.
    events: Vec<Value>,
}

impl Browser {
    /// None without Chromium, which is said aloud, and a failure where `CI` is set.
    pub fn start(name: &str) -> Option<Browser> {
        let program = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
            .into_iter()
            .find(|program| fs::exists(program).unwrap_or(false));
        let Some(program) = program else {
            assert!(env::var("CI").as_deref() != Ok("true"), "SKIPPED in CI: no Chromium");
            eprintln!("SKIPPED {name}: there is no Chromium; Debian: apt install chromium");
            return None;
        };
        let folder = env::temp_dir().join(format!("manylane-browser-{}-{name}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The browser reads questions from descriptor 3 and writes answers to 4: the ends of our pipes.
        let script = format!(
            "exec 3<&0 4>&1; exec {program} --headless=new --no-sandbox --disable-gpu --no-proxy-server \
             --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir={} about:blank </dev/null >/dev/null 2>&1",
            folder.join("profile").display()
        );
        let mut process = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let (session, events) = (Value::Null, Vec::new());
        let mut browser = Browser { folder, process, ask, answers, number: 0, session, events };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let tab = targets.iter().find(|target| target["type"] == "page").expect("it has a tab");
        let attach = json!({"targetId": tab["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Runtime", "Page", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let path = browser.folder.display().to_string();
        let keep = json!({"behavior": "allow", "downloadPath": path, "eventsEnabled": true});
        browser.call("Browser.setDownloadBehavior", keep);
        Some(browser)
    }

    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// The window's width, and whether it is dark.
    pub fn look(&mut self, width: u32, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// What an expression of the page's comes to.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let question =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", question);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until a condition of the page's holds, for 60 seconds at most.
    pub fn until(&mut self, condition: &str) {
        let promise = format!(
            "new Promise((done) => {{ const end = Date.now() + 60000; (function look() {{ let is; \
             try {{ is = Boolean({condition}); }} catch {{ is = false; }} \
             if (is || Date.now() > end) done(is); else setTimeout(look, 50); }})(); }})"
        );
        let holds = self.evaluate(&promise) == json!(true);
        if !holds {
            let text = self.text();
            panic!("never was {condition}; the page:\n{text}\n{:#?}", self.complaints());
        }
    }

    /// What a reader sees.
    pub fn text(&mut self) -> String {
        self.evaluate("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits for the file that is being downloaded, and reads it.
    pub fn downloaded(&mut self) -> Vec<u8> {
        let is_done = |event: &Value| {
            event["method"] == "Browser.downloadProgress" && event["params"]["state"] == "completed"
        };
        while !self.events.iter().any(is_done) {
            let event = self.read();
            self.events.push(event);
        }
        let begun = self
            .events
            .iter()
            .find(|event| event["method"] == "Browser.downloadWillBegin")
            .unwrap();
        let name = begun["params"]["suggestedFilename"].as_str().unwrap();
        assert!(name.ends_with(".pcapng"), "{name}");
        fs::read(self.folder.join(name)).unwrap()
    }

    /// Errors so far: of the script, and of what the browser has against the page.
    pub fn complaints(&self) -> Vec<String> {
        let is_one = |event: &&Value| {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => true,
                "Log.entryAdded" => params["entry"]["level"] != "verbose",
                _ => false,
            }
        };
        self.events.iter().filter(is_one).map(|event| event["params"].to_string()).collect()
    }

    /// Where it asked so far.
    pub fn requests(&self) -> Vec<String> {
        let asked =
            self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let address =
            |event: &Value| event["params"]["request"]["url"].as_str().unwrap_or("").to_owned();
        asked.map(address).collect()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut question = json!({"id": self.number, "method": method, "params": params});
        if self.session.is_string() && !method.starts_with("Browser.") {
            question["sessionId"] = self.session.clone();
        }
        let ask = self.ask.as_mut().expect("it is there until the drop");
        ask.write_all(format!("{question}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.read();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without questions it ends, and so do the processes it began.
        drop(self.ask.take());
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
