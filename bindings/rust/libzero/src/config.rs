//! A DeepSpeed configuration.
// SPDX-License-Identifier: BSD-3-Clause
use crate::checked;
use crate::error::{static_text, Result};
use libzero_sys::*;
use std::path::Path;

/// A DeepSpeed configuration: read, set, checked, explained.
#[derive(Debug)]
pub struct Config {
    pub(crate) handle: *mut zero_config,
}
unsafe impl Send for Config {}

/// One finding of a check.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Else a warning.
    pub is_error: bool,
    /// 1-based; 0 when no line is to blame.
    pub line: i32,
    /// 1-based.
    pub column: i32,
    /// As the file spells it.
    pub key: String,
    /// One sentence, with what was expected.
    pub message: String,
    /// The nearest known key or value, or "".
    pub suggestion: String,
}

impl Config {
    /// All defaults.
    pub fn new() -> Result<Config> {
        Ok(Config { handle: unsafe { checked::config_create()? } })
    }

    /// From a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Config> {
        Ok(Config { handle: unsafe { checked::config_load_file(&path.as_ref().to_string_lossy())? } })
    }

    /// From JSON.
    pub fn parse(text: &str) -> Result<Config> {
        Ok(Config { handle: unsafe { checked::config_load_text(text)? } })
    }

    /// key is a dotted path ("zero_optimization.stage"); value as in a file.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        unsafe { checked::config_set(self.handle, key, value) }
    }

    /// The effective value.
    pub fn get(&self, key: &str) -> Result<String> {
        unsafe { checked::config_get(self.handle, key) }
    }

    /// Where it comes from: "file", "set", "facts", "derived" or "default".
    pub fn origin(&self, key: &str) -> Result<&'static str> {
        unsafe { checked::config_origin(self.handle, key) }
    }

    /// Fills every "auto" that the facts determine; `checked::Init::init()` makes facts that know nothing.
    pub fn fill_auto(&mut self, facts: &zero_config_facts) -> Result<()> {
        unsafe { checked::config_fill_auto(self.handle, Some(facts)) }
    }

    /// Every check that needs no communicator and no device.
    pub fn check(&mut self) -> Result<()> {
        unsafe { checked::config_check(self.handle) }
    }

    /// All findings of the last check, in file order.
    pub fn findings(&self) -> Result<Vec<Diagnostic>> {
        let mut found = Vec::new();
        unsafe {
            for index in 0..checked::config_diagnostic_count(self.handle) {
                let d = checked::config_diagnostic_at(self.handle, index)?;
                found.push(Diagnostic {
                    is_error: d.is_error != 0,
                    line: d.line,
                    column: d.column,
                    key: static_text(d.key).to_owned(),
                    message: static_text(d.message).to_owned(),
                    suggestion: static_text(d.suggestion).to_owned(),
                });
            }
        }
        Ok(found)
    }

    /// The whole, defaults filled in, in a form that `parse` reads.
    pub fn text(&self) -> Result<String> {
        unsafe { checked::config_text(self.handle) }
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        unsafe { checked::config_destroy(self.handle) }
    }
}
