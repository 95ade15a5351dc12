//! Generating a reply and showing it.

use crate::progress::Spinner;
use crate::{args, output};
use mlxcel_engine::{
    Cancel, Event, GenerateError, Generation, Options, Session, Summary, Thread, open,
};
use mlxcel_frontend::Text;
use mlxcel_lower::memory;
use mlxcel_runtime_mlx::{By, Route};
use std::io;

/// A loaded model with a sequence to generate on.
pub(crate) struct Speaker {
    session: Box<dyn Session>,
    pub(crate) text: Text,
    pub(crate) model: String,
    thread: Thread,
}

/// A finished reply.
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) summary: Summary,
}

impl Speaker {
    /// Loads a model.
    pub(crate) fn load(arguments: &args::ModelArguments) -> anyhow::Result<Self> {
        let spinner = Spinner::new(format!("loading {}", arguments.model.display()));
        let opened = open(&arguments.model, &arguments.options())?;
        let text = opened.text()?;
        drop(spinner);
        let slow = |route: &&Route| route.quantised && route.by == By::Numbers;
        for route in opened.routes.iter().filter(slow) {
            eprintln!("note: no kernel takes {route}");
        }
        args::tell(opened.notes());
        let mut session = opened.session;
        Ok(Self {
            thread: Thread::new(&mut *session)?,
            session,
            text,
            model: opened.name,
        })
    }

    /// Generates the reply to `prompt` and hands its pieces to `show` as they come.
    pub(crate) fn reply(
        &mut self,
        prompt: &[u32],
        options: &Options,
        cancel: &Cancel,
        mut show: impl FnMut(&str) -> io::Result<()>,
    ) -> anyhow::Result<Reply> {
        let sequence = self.thread.prepare(&mut *self.session, prompt)?;
        let session = &mut *self.session;
        let generation = Generation::new(
            session,
            &self.text,
            sequence,
            prompt,
            options,
            cancel.clone(),
        )?;
        let mut text = String::new();
        let mut finished = None;
        for event in generation {
            match event? {
                Event::Text(piece) => {
                    show(&piece)?;
                    text += &piece;
                }
                Event::Finished(summary) => finished = Some(summary),
            }
        }
        let summary = finished.ok_or(GenerateError::MissingOutput)?;
        self.thread
            .record(&*self.session, prompt, &summary.tokens)?;
        Ok(Reply { text, summary })
    }

    /// Generates the reply to `prompt` and writes it to stdout as it comes, with a line's end.
    pub(crate) fn speak(
        &mut self,
        prompt: &[u32],
        options: &Options,
        cancel: &Cancel,
    ) -> anyhow::Result<Reply> {
        let reply = self.reply(prompt, options, cancel, output::text)?;
        output::text("\n")?;
        Ok(reply)
    }
}

/// Tells on stderr what a reply took.
pub(crate) fn tell(summary: &Summary) {
    let memory = match memory::peak() {
        Some(bytes) => format!(", {} of memory", output::bytes(bytes)),
        None => String::new(),
    };
    anstream::eprintln!("\x1b[2m{summary}{memory}\x1b[0m");
}
