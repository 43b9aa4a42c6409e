//! The documents against the servers: what is documented is answered, and as it is documented.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::served::{Kind, Served};
use crate::{Listen, TraceLine, TraceStage, TraceWhat};

#[test]
fn the_forwarder_answers_as_its_document_says() {
    let served = Served::start(Kind::Forwarder, "contract-run", &Listen::default());
    let document = document(&served);
    let asked = [
        ("put", "/v1/config/{key}", "/v1/config/frames.hot_list_len", "512"),
        ("put", "/v1/ports/{port}", "/v1/ports/dmz", ""),
        ("delete", "/v1/ports/{port}", "/v1/ports/lan", ""),
        ("put", NEIGHBOUR, "/v1/neighbours/lan/10.1.0.9", "02:00:00:00:00:09"),
        ("delete", NEIGHBOUR, "/v1/neighbours/lan/10.1.0.2", ""),
        ("post", "/v1/config/diff", "/v1/config/diff", APPLIED),
        ("post", "/v1/config/apply", "/v1/config/apply", APPLIED),
        ("post", "/v1/config/confirm", "/v1/config/confirm", ""),
        ("post", "/v1/config/rollback", "/v1/config/rollback", ""),
        ("post", "/v1/trace", "/v1/trace", r#"{"count":1,"filter":[[6,0,0,1]]}"#),
        ("post", "/v1/capture/drops", "/v1/capture/drops", r#"{"seconds":1}"#),
    ];
    let seen = every_path(&served, &document, &asked);
    assert!(seen.contains("PortStatus.faults") && seen.contains("FaultStatus.delayed"), "{seen:?}");
    let asked = ["ApiError", "CaptureRequest", "ConfigRequest"];
    let of_answers = |name: &str| !name.starts_with("Trace") && !asked.contains(&name);
    // Only `manylane accelerate` warns.
    let unseen = unseen(&document, &seen, of_answers);
    assert_eq!(unseen, ["Setting.warning"], "documented, and never answered");
}

#[test]
fn the_accelerator_answers_as_its_document_says() {
    let served = Served::start(Kind::Accelerator, "contract-accelerate", &Listen::default());
    let document = document(&served);
    let why = "/v1/accelerate/why/{interface}/{source}/{destination}";
    let transport = format!("{why}/{{protocol}}/{{source_port}}/{{destination_port}}");
    let asked = [
        ("put", "/v1/config/{key}", "/v1/config/port.lan.tier", "driver"),
        ("put", "/v1/ports/{port}", "/v1/ports/dmz", ""),
        ("get", why, "/v1/accelerate/why/lan/10.1.0.1/10.2.0.1", ""),
        ("get", &transport, "/v1/accelerate/why/lan/10.1.0.1/10.2.0.1/tcp/4000/80", ""),
        ("post", "/v1/capture/drops", "/v1/capture/drops", r#"{"seconds":1}"#),
    ];
    let seen = every_path(&served, &document, &asked);
    // The sample has no neighbours and no groups.
    let of_answers = |name: &str| {
        let asked = ["TrackedFlowsRequest", "KernelFlowsRequest", "CaptureRequest"];
        !["ApiError", "MirroredNeighbour", "MemberStatus"].contains(&name) && !asked.contains(&name)
    };
    let unseen = unseen(&document, &seen, of_answers);
    assert_eq!(unseen, ["RouteStatus.group"], "documented, and never answered");
}

/// The one way to add a route documents it.
#[test]
fn no_route_is_without_its_description() {
    for source in [
        include_str!("../server/mod.rs"),
        include_str!("../server/accelerate.rs"),
        include_str!("../server/accelerate/connections.rs"),
    ] {
        assert!(!source.contains(".route("), "routes are added by `Routes`");
    }
    for kind in [Kind::Forwarder, Kind::Accelerator] {
        let name = match kind {
            Kind::Forwarder => "routes-run",
            Kind::Accelerator => "routes-accelerate",
        };
        let served = Served::start(kind, name, &Listen::default());
        let document = document(&served);
        assert_eq!(document["openapi"].as_str().map(|version| &version[..3]), Some("3.1"));
        let paths = document["paths"].as_object().unwrap();
        assert!(paths.contains_key("/v1/openapi.json") && paths.contains_key("/metrics"));
        let mut ids = BTreeSet::new();
        for (path, method, operation) in operations(&document) {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(ids.insert(id.clone()), "{method} {path}: {id} is there twice");
            assert!(operation["summary"].is_string(), "{method} {path} is not described");
            // A method that is not documented is not taken.
            for other in ["get", "put", "post", "delete", "patch"] {
                if document["paths"][path].get(other).is_none() {
                    let asked = path.replace(['{', '}'], "");
                    let status = served.ask(&other.to_uppercase(), &asked, "").status;
                    // Or the other daemon takes it.
                    assert!([405, 421].contains(&status), "{other} {path}: {status}");
                }
            }
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name} is not described");
        }
    }
}

#[test]
fn the_lines_of_a_trace_are_as_documented() {
    let served = Served::start(Kind::Forwarder, "contract-trace", &Listen::default());
    let document = document(&served);
    let stage = |what| TraceLine::Stage(TraceStage { packet: 1, worker: 0, time_ns: 7, what });
    let lines = [
        TraceLine::Armed,
        TraceLine::Lost { stages: 1, packets: 2 },
        stage(TraceWhat::Steered { bucket: 7, to: 1 }),
        stage(TraceWhat::Transmitted { port: "lan".into(), queue: None }),
        stage(TraceWhat::Changed),
    ];
    let schema = json!({"$ref": "#/components/schemas/TraceLine"});
    for line in lines {
        let line = serde_json::to_value(line).unwrap();
        let mut checker = Checker { document: &document, seen: BTreeSet::new() };
        assert_eq!(checker.check(&line, &schema, "line"), Ok(()), "{line}");
    }
    let mut checker = Checker { document: &document, seen: BTreeSet::new() };
    assert!(checker.check(&json!({"event": "armed", "more": 1}), &schema, "line").is_err());
}

const APPLIED: &str = r#"{"text":"[icmp]","name":"file","confirm_within_s":60}"#;
const NEIGHBOUR: &str = "/v1/neighbours/{port}/{address}";

fn document(served: &Served) -> Value {
    let answer = served.ask("GET", "/v1/openapi.json", "");
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    serde_json::from_str(&answer.body).unwrap()
}

fn operations(document: &Value) -> Vec<(&String, &String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut all = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((path, method, operation));
        }
    }
    all
}

/// Queries each documented path; those in `asked` with the body named there. Returns the fields that were seen.
fn every_path(
    served: &Served,
    document: &Value,
    asked: &[(&str, &str, &str, &str)],
) -> BTreeSet<String> {
    let mut checker = Checker { document, seen: BTreeSet::new() };
    for (path, method, operation) in operations(document) {
        let with = asked.iter().find(|(is, at, ..)| is == method && at == path);
        let (at, body) = with.map_or((path.as_str(), ""), |(.., at, body)| (at, body));
        assert!(!at.contains('{'), "nobody asks {method} {path} in this test");
        let answer = served.ask(&method.to_uppercase(), at, body);
        let responses = &operation["responses"];
        let response = &responses[answer.status.to_string()];
        assert!(!response.is_null(), "{method} {at}: {} is not documented", answer.status);
        let mut contents = response["content"].as_object().unwrap().iter();
        let is_sent =
            |(kind, _): &(&String, &Value)| answer.head.contains(&format!("content-type: {kind}"));
        let content = contents.find(is_sent);
        let (kind, content) = content.unwrap_or_else(|| panic!("{at}: {}", answer.head));
        if kind == "application/json" && path != "/v1/openapi.json" {
            let value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(checker.check(&value, &content["schema"], at), Ok(()), "{at}");
        }
        for (status, refusal) in
            responses.as_object().unwrap().iter().filter(|(is, _)| *is != "200")
        {
            let schema = &refusal["content"]["application/json"]["schema"];
            assert_eq!(schema["$ref"], "#/components/schemas/ApiError", "{at} {status}");
        }
    }
    checker.seen
}

/// Documented fields of these schemas that no answer had.
fn unseen(document: &Value, seen: &BTreeSet<String>, of: impl Fn(&str) -> bool) -> Vec<String> {
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let fields = schemas.iter().filter(|(name, _)| of(name)).flat_map(|(name, schema)| {
        let fields = schema["properties"].as_object().into_iter().flatten();
        fields.map(move |(field, _)| format!("{name}.{field}"))
    });
    fields.filter(|field| !seen.contains(field)).collect()
}

/// Holds values against schemas: as strict as the document can be read.
struct Checker<'d> {
    document: &'d Value,
    /// `Schema.field` that a value had.
    seen: BTreeSet<String>,
}

/// One way that a schema can be fulfilled: of `allOf` all parts, of `oneOf` one.
#[derive(Clone, Default)]
struct Shape<'d> {
    plain: Option<&'d Value>,
    /// With the name of the schema that has it.
    properties: BTreeMap<&'d str, (String, &'d Value)>,
    required: BTreeSet<&'d str>,
}

impl<'d> Checker<'d> {
    fn check(&mut self, value: &Value, schema: &'d Value, at: &str) -> Result<(), String> {
        let mut problems = Vec::new();
        for shape in self.shapes(schema, "") {
            match self.fits(value, &shape, at) {
                Ok(()) => return Ok(()),
                Err(problem) => problems.push(problem),
            }
        }
        Err(problems.join(", or "))
    }

    fn shapes(&self, schema: &'d Value, name: &str) -> Vec<Shape<'d>> {
        if let Some(path) = schema["$ref"].as_str() {
            let name =
                path.strip_prefix("#/components/schemas/").expect("a schema of this document");
            let schema = &self.document["components"]["schemas"][name];
            assert!(!schema.is_null(), "there is no schema {name}");
            return self.shapes(schema, name);
        }
        if let Some(any) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            return any.iter().flat_map(|one| self.shapes(one, name)).collect();
        }
        if let Some(all) = schema["allOf"].as_array() {
            return all.iter().fold(vec![Shape::default()], |shapes, part| {
                let parts = self.shapes(part, name);
                let both = |shape: &Shape<'d>| {
                    parts.iter().map(|part| merged(shape, part)).collect::<Vec<_>>()
                };
                shapes.iter().flat_map(both).collect()
            });
        }
        let Some(properties) = schema["properties"].as_object() else {
            return vec![Shape { plain: Some(schema), ..Shape::default() }];
        };
        let named =
            |(field, schema): (&'d String, &'d Value)| (field.as_str(), (name.to_owned(), schema));
        let required = schema["required"].as_array().into_iter().flatten();
        vec![Shape {
            plain: None,
            properties: properties.iter().map(named).collect(),
            required: required.filter_map(Value::as_str).collect(),
        }]
    }

    fn fits(&mut self, value: &Value, shape: &Shape<'d>, at: &str) -> Result<(), String> {
        if let Some(schema) = shape.plain {
            return self.is_plain(value, schema, at);
        }
        let Some(fields) = value.as_object() else { return Err(format!("{at} is no object")) };
        for (field, value) in fields {
            let Some((owner, schema)) = shape.properties.get(field.as_str()) else {
                return Err(format!("{at}.{field} is not documented"));
            };
            self.check(value, schema, &format!("{at}.{field}"))?;
            self.seen.insert(format!("{owner}.{field}"));
        }
        match shape.required.iter().find(|field| !fields.contains_key(**field)) {
            Some(field) => Err(format!("{at}.{field} is missing")),
            None => Ok(()),
        }
    }

    fn is_plain(&mut self, value: &Value, schema: &'d Value, at: &str) -> Result<(), String> {
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return Err(format!("{at}: {schema} has no type")),
        };
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) if kinds.contains(&"number") => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !kinds.contains(&is) {
            return Err(format!("{at} is {is} and not {kinds:?}"));
        }
        if let Some(words) = schema["enum"].as_array()
            && !words.contains(value)
        {
            return Err(format!("{at}: {value} is not documented"));
        }
        if schema["minimum"].as_f64().is_some_and(|least| value.as_f64().unwrap_or(least) < least) {
            return Err(format!("{at}: {value} is too small"));
        }
        if let Some(items) = value.as_array() {
            for (number, item) in items.iter().enumerate() {
                let at = format!("{at}[{number}]");
                match schema["prefixItems"].get(number) {
                    Some(schema) => self.check(item, schema, &at)?,
                    None => self.check(item, &schema["items"], &at)?,
                }
            }
        }
        for (key, part) in value.as_object().into_iter().flatten() {
            self.check(part, &schema["additionalProperties"], &format!("{at}[{key:?}]"))?;
        }
        Ok(())
    }
}

fn merged<'d>(one: &Shape<'d>, other: &Shape<'d>) -> Shape<'d> {
    let mut both = one.clone();
    both.properties.extend(other.properties.clone());
    both.required.extend(&other.required);
    both.plain = one.plain.or(other.plain);
    both
}
