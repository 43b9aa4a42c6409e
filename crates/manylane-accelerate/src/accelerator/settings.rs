//! Settings that change while the accelerator runs: `port.IF.tier`, `port.IF.sflow_rate`.

use manylane_api::accelerate::AskError;
use manylane_api::{ApiError, Setting, SettingValue};

use super::published::Published;
use super::{TierChoice, sflow, why};

/// Changes a setting.
pub(super) fn set(published: &Published, key: &str, value: &str) -> Result<Setting, AskError> {
    let bad =
        |error: String, help: &str| AskError::BadQuestion(ApiError { error, help: help.into() });
    let of_port = |end: &str| key.strip_prefix("port.").and_then(|key| key.strip_suffix(end));
    if let Some(interface) = of_port(".sflow_rate") {
        let ports = published.view().ports.clone();
        return sflow::set_rate(published.sflow.as_deref(), &ports, (key, interface), value);
    }
    let Some(interface) = of_port(".tier") else {
        let help =
            "port.IF.tier and port.IF.sflow_rate can, for each interface IF that is accelerated";
        return Err(bad(format!("{key} cannot be set"), help));
    };
    let Some(choice) = TierChoice::named(value) else {
        let help = "auto, ingress, driver, workers and kernel are";
        return Err(bad(format!("{value:?} is no tier"), help));
    };
    let name = interface.to_owned();
    let Some(warning) = published.questions.ask(move |thread| thread.set_tier(&name, choice))?
    else {
        let ports = published.view().ports.clone();
        return Err(AskError::BadQuestion(why::unknown(&ports, interface)));
    };
    let value = SettingValue::Word(choice.name().into());
    Ok(Setting { warning, ..Setting::new(key, value) })
}
