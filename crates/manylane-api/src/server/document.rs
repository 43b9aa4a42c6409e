//! Routes that are documented by the same call that serves them: no path can be without its description, and no
//! description without its path.
//!
//! The document is OpenAPI 3.1, at [`OPENAPI`]. Its schemas are made from the types that are served; what the
//! types' fields say here is what their comments say in the source.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json, Router};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, Object, Ref, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApiBuilder, RefOr, Required};

use super::body::listed;
use super::bounds::Asker;
use crate::model::ApiError;

/// Where the document is.
pub(super) const OPENAPI: &str = "/v1/openapi.json";

/// Why a request is not answered.
pub(super) type Refusal = (StatusCode, Json<ApiError>);

/// Routes over a source, and what is written of them.
pub(super) struct Routes<S: ?Sized> {
    title: &'static str,
    router: Router<Arc<S>>,
    paths: Paths,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

/// What a body is.
pub(super) enum Sent {
    /// A word or a number, as text.
    Word(&'static str),
    /// JSON of this schema, which is described.
    Json(&'static str, RefOr<Schema>),
    /// Text of this content type, which is described.
    Text(&'static str, &'static str),
    /// Text of one of these content types, as the client asks, which is described.
    Texts(&'static str, &'static [&'static str]),
    /// Bytes of this content type, which are described.
    Bytes(&'static str, &'static str),
    /// Lines of JSON of this schema, without end.
    Lines(&'static str, RefOr<Schema>),
}

/// What is written of one method of one path.
pub(super) struct OperationDoc {
    /// Unique in a document: clients that are made from it call their functions so.
    pub id: &'static str,
    /// What it does, in a sentence.
    pub does: &'static str,
    /// What is in the path, each with what it means.
    pub parameters: &'static [(&'static str, &'static str)],
    /// What is sent along.
    pub takes: Option<Sent>,
    /// What it answers.
    pub gives: Sent,
    /// Statuses of refusals, each with when it is.
    pub refuses: &'static [(u16, &'static str)],
}

impl<S: ?Sized + Send + Sync + 'static> Routes<S> {
    pub fn new(title: &'static str) -> Routes<S> {
        let schemas = BTreeMap::new();
        let mut routes = Routes { title, router: Router::new(), paths: Paths::new(), schemas };
        routes.schema::<ApiError>();
        routes
    }

    /// A list that is read.
    pub fn list<T: ToSchema + Serialize + 'static>(
        mut self,
        path: &'static str,
        does: &'static str,
        refuses: &'static [(u16, &'static str)],
        take: fn(&S) -> Result<Vec<T>, Refusal>,
    ) -> Self {
        let items = self.schema::<T>();
        let gives = Sent::Json("The list.", ArrayBuilder::new().items(items).into());
        self.read(path, does, refuses, gives, take)
    }

    /// As [`list`](Self::list), of any number of elements: one at a time for each client, sent in parts.
    pub fn long_list<T: ToSchema + Serialize + Send + Unpin + 'static>(
        mut self,
        path: &'static str,
        does: &'static str,
        refuses: &'static [(u16, &'static str)],
        take: fn(&S) -> Result<Vec<T>, Refusal>,
    ) -> Self {
        let items = self.schema::<T>();
        let gives = Sent::Json("The list.", ArrayBuilder::new().items(items).into());
        let answer =
            get(async move |State(source): State<Arc<S>>, Extension(asker): Extension<Asker>| {
                let turn = asker.turn().await?;
                let list = take(&source)?;
                Ok::<_, Refusal>(listed(list, turn, asker.limits))
            });
        self.reading(path, does, refuses, gives, answer)
    }

    /// One thing that is read.
    pub fn one<T: ToSchema + Serialize + 'static>(
        mut self,
        path: &'static str,
        does: &'static str,
        refuses: &'static [(u16, &'static str)],
        take: fn(&S) -> Result<T, Refusal>,
    ) -> Self {
        let gives = Sent::Json("It.", self.schema::<T>());
        self.read(path, does, refuses, gives, take)
    }

    fn read<T: Serialize + 'static>(
        self,
        path: &'static str,
        does: &'static str,
        refuses: &'static [(u16, &'static str)],
        gives: Sent,
        take: fn(&S) -> Result<T, Refusal>,
    ) -> Self {
        let answer = get(async move |State(source): State<Arc<S>>| take(&source).map(Json));
        self.reading(path, does, refuses, gives, answer)
    }

    fn reading(
        self,
        path: &'static str,
        does: &'static str,
        refuses: &'static [(u16, &'static str)],
        gives: Sent,
        answer: MethodRouter<Arc<S>>,
    ) -> Self {
        let id = path.trim_start_matches("/v1/");
        self.at(
            HttpMethod::Get,
            path,
            answer,
            OperationDoc { id, does, parameters: &[], takes: None, gives, refuses },
        )
    }

    /// Another route: `handler` is the one that answers `method`.
    pub fn at(
        mut self,
        method: HttpMethod,
        path: &'static str,
        handler: MethodRouter<Arc<S>>,
        doc: OperationDoc,
    ) -> Self {
        self.paths.add_path_operation(path, vec![method], operation(doc));
        Routes { router: self.router.route(path, handler), ..self }
    }

    /// A type's schema, by its name.
    pub fn schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        if is_text(&T::schema()) {
            return T::schema();
        }
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        self.schemas.extend(schemas);
        Ref::from_schema_name(T::name()).into()
    }

    /// The routes, with one for their document.
    pub fn finish(self) -> Router<Arc<S>> {
        let doc = OperationDoc {
            id: "openapi",
            does: "This document.",
            parameters: &[],
            takes: None,
            gives: Sent::Json("It.", Object::new().into()),
            refuses: &[],
        };
        // Its text is needed by the handler, which its own description does not depend on.
        let mut paths = self.paths;
        paths.add_path_operation(OPENAPI, vec![HttpMethod::Get], operation(doc));
        let info = InfoBuilder::new()
            .title(self.title)
            .description(Some(
                "Names are stable: they may be added to, and never change. Units are in the names: `_s`, `_ms`, \
                 `_ns`, `_bytes`; what has no unit is a number of what its description says.",
            ))
            .version(env!("CARGO_PKG_VERSION"))
            .build();
        let components = ComponentsBuilder::new()
            .schemas_from_iter(self.schemas)
            .security_scheme(TOKEN, token())
            .build();
        // Either suffices: the token, or nothing at the socket and at a listener without a token.
        let either = [SecurityRequirement::new(TOKEN, [""; 0]), SecurityRequirement::default()];
        let document = OpenApiBuilder::new()
            .info(info)
            .paths(paths)
            .components(Some(components))
            .security(Some(either));
        let text: Arc<str> = document.build().to_json().expect("its keys are texts").into();
        let answer = get(async move || {
            ([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response()
        });
        self.router.route(OPENAPI, answer)
    }
}

/// How the token is called in the document.
const TOKEN: &str = "token";

fn token() -> SecurityScheme {
    let http = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "The content of `token_file` in [api], or of --token-file. Every method over TCP needs the token, and is \
         refused with 401 without it; where no token is configured, methods that change something are refused with \
         403. The Unix socket needs no token: its file's mode limits access.",
    ));
    SecurityScheme::Http(http.build())
}

fn operation(doc: OperationDoc) -> Operation {
    let OperationDoc { id, does, parameters, takes, gives, refuses } = doc;
    let id = id.replace(['/', '.'], "_");
    let mut operation = OperationBuilder::new().operation_id(Some(id)).summary(Some(does));
    for (name, means) in parameters {
        operation = operation.parameter(parameter(name, means));
    }
    if let Some(body) = takes {
        let (description, contents) = contents(body);
        let mut body =
            RequestBodyBuilder::new().description(Some(description)).required(Some(Required::True));
        for (kind, content) in contents {
            body = body.content(kind, content);
        }
        operation = operation.request_body(Some(body.build()));
    }
    let (description, contents) = contents(gives);
    let mut answer = ResponseBuilder::new().description(description);
    for (kind, content) in contents {
        answer = answer.content(kind, content);
    }
    operation = operation.response("200", answer.build());
    for (status, when) in refuses {
        let error = Content::new(Some(Ref::from_schema_name("ApiError")));
        let refusal = ResponseBuilder::new().description(*when).content("application/json", error);
        operation = operation.response(status.to_string(), refusal.build());
    }
    operation.build()
}

fn parameter(name: &str, means: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(means))
        .schema(Some(text()))
        .build()
}

/// Its description, and each of its types with a schema.
fn contents(body: Sent) -> (&'static str, Vec<(&'static str, Content)>) {
    let one = |kind, content| vec![(kind, content)];
    match body {
        Sent::Word(means) => (means, one("text/plain", Content::new(Some(text())))),
        Sent::Json(means, schema) => (means, one("application/json", Content::new(Some(schema)))),
        Sent::Text(means, kind) => (means, one(kind, Content::new(Some(text())))),
        Sent::Texts(means, kinds) => {
            (means, kinds.iter().map(|&kind| (kind, Content::new(Some(text())))).collect())
        }
        Sent::Bytes(means, kind) => (means, one(kind, Content::default())),
        Sent::Lines(means, schema) => (means, one(LINES, Content::new(Some(schema)))),
    }
}

/// What a body of lines of JSON is.
pub(super) const LINES: &str = "application/x-ndjson";

fn text() -> Object {
    Object::with_type(Type::String)
}

fn is_text(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if *object == text())
}
