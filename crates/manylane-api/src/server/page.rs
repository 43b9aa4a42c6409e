//! The dashboard's route: one page, which asks the API for what it shows.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};

use super::document::{OperationDoc, Sent};
use crate::dashboard;

/// Where the page is. Its answer alone needs no token: the page holds nothing of the daemon.
pub(super) const PAGE: &str = "/";

/// Answers with the page.
pub(super) fn answer<S: ?Sized + Send + Sync + 'static>() -> MethodRouter<Arc<S>> {
    get(async || {
        let nonce = nonce();
        let headers = [
            (header::CONTENT_TYPE, HTML.to_owned()),
            (header::CONTENT_SECURITY_POLICY, policy(&nonce)),
            (header::CACHE_CONTROL, "no-store".into()),
            (header::REFERRER_POLICY, "no-referrer".into()),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
        ];
        (headers, dashboard::page(&nonce)).into_response()
    })
}

/// What the API's document says of it.
pub(super) fn doc() -> OperationDoc {
    OperationDoc {
        id: "dashboard",
        does: "The dashboard: a page that shows the answers described here.",
        parameters: &[],
        takes: None,
        gives: Sent::Text("A page.", HTML),
        refuses: &[],
    }
}

const HTML: &str = "text/html; charset=utf-8";

/// The page's own script and style, and questions to where it came from: nothing else.
fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// An unpredictable word: two hashes under keys from the system's random numbers.
fn nonce() -> String {
    let word = || RandomState::new().hash_one(PAGE);
    format!("{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests {
    use crate::Listen;
    use crate::tests::served::{Kind, Served, folder, token_file};

    #[test]
    fn both_daemons_have_a_page_that_needs_nothing_else() {
        for (kind, name) in [(Kind::Forwarder, "page-run"), (Kind::Accelerator, "page-accelerate")]
        {
            let served = Served::start(kind, name, &Listen::default());
            let answer = served.ask("GET", "/", "");
            assert_eq!(answer.status, 200);
            assert!(answer.head.contains("content-type: text/html"), "{}", answer.head);
            let policy = answer.head.lines().find(|line| line.starts_with("content-security"));
            let policy = policy.expect("a policy");
            assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
            for attribute in ["src=", "@import", "url(", "style=", "onclick="] {
                assert!(!answer.body.contains(attribute), "{attribute}");
            }
            let again = served.ask("GET", "/", "");
            assert_ne!(again.body, answer.body, "a nonce is used once");
        }
    }

    #[test]
    fn the_page_comes_without_a_token_and_numbers_do_not() {
        let folder = folder("page-token");
        let token_file = Some(token_file(&folder, "0123456789abcdef", 0o600));
        let address = Some("127.0.0.1:0".parse().unwrap());
        let listen = Listen { address, token_file, host_name: None };
        let served = Served::start(Kind::Forwarder, "page-token-served", &listen);
        let status = |method, path, host| served.ask_tcp(method, path, &[host]).status;
        assert_eq!(status("GET", "/", "Host: localhost"), 200);
        assert_eq!(status("GET", "/v1/ports", "Host: localhost"), 401);
        assert_eq!(status("POST", "/v1/capture/drops", "Host: localhost"), 401);
        assert_eq!(status("POST", "/", "Host: localhost"), 401);
        assert_eq!(status("GET", "/", "Host: evil.example"), 403);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
