//! What is going on, for people who watch.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mlxcel_lower::Progress;
use std::time::Duration;

/// A line on stderr that says what is going on; nothing where stderr is no terminal. It goes away
/// when dropped.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        // Draws only on a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}") {
            bar.set_style(style);
        }
        bar.set_message(message.into());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    pub(crate) fn say(&self, message: impl Into<String>) {
        self.0.set_message(message.into());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How many of a number of things are done, where that takes more than a moment.
pub(crate) struct Count(Spinner);

impl Count {
    pub(crate) fn new(message: &'static str, total: usize) -> Self {
        let spinner = Spinner::new(message);
        spinner.0.set_length(total as u64);
        let template = "{spinner} {msg} {bar:30} {pos} of {len} {eta:.dim}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            spinner.0.set_style(style);
        }
        Self(spinner)
    }

    pub(crate) fn at(&self, done: usize) {
        self.0.0.set_position(done as u64);
    }
}

/// How far a compilation is: a spinner, and a bar while weights are written.
pub(crate) struct CompileBar(Spinner);

impl CompileBar {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(Spinner::new(message))
    }

    pub(crate) fn say(&self, message: &'static str) {
        self.0.say(message);
    }

    pub(crate) fn show(&self, progress: Progress) {
        match progress {
            Progress::Waiting => self.0.say("waiting for another process that writes it"),
            Progress::Emitting => self.0.say("writing StableHLO"),
            Progress::Compiling => self.0.say("compiling"),
            Progress::Weights { done, total } => {
                let bar = &self.0.0;
                if bar.length() != Some(total) {
                    bar.set_length(total);
                    let template = "{spinner} writing weights {bar:30} {bytes} of {total_bytes}";
                    if let Ok(style) = ProgressStyle::with_template(template) {
                        bar.set_style(style);
                    }
                }
                bar.set_position(done);
            }
        }
    }
}
