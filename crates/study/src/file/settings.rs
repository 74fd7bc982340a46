//! Settings in a study file, each with its position in the text.

use crate::driver::{DriverKind, Settings};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use toml::Spanned;
use unisono_text::{explain_unknown, nearest};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct WrittenSettings(BTreeMap<Spanned<String>, Spanned<Value>>);

impl WrittenSettings {
    pub fn values(&self) -> Settings {
        self.0.iter().map(|(name, value)| (name.get_ref().clone(), value.get_ref().clone())).collect()
    }

    /// Replaces each value by the form that the driver reads. The error holds the byte to point at,
    /// and the problem.
    pub(super) fn normalize(&mut self, driver: &DriverKind) -> Result<(), (usize, String)> {
        for (name, value) in &mut self.0 {
            known(driver, name.get_ref()).map_err(|problem| (name.span().start, problem))?;
            let understood = driver
                .normalize(name.get_ref(), value.get_ref())
                .map_err(|error| (value.span().start, explain_unknown(&error.to_string())))?;
            *value.get_mut() = understood;
        }
        Ok(())
    }
}

/// Refuses a setting that the driver lacks, and names the settings that it has.
pub(super) fn known(driver: &DriverKind, name: &str) -> Result<(), String> {
    let settings = driver.settings();
    let names = || settings.iter().map(String::as_str);
    if names().any(|known| known == name) {
        return Ok(());
    }
    let meant = nearest(name, names()).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Err(format!(
        "the driver `{}` has no setting `{name}`{meant} (it has {})",
        driver.name,
        settings.join(", ")
    ))
}
