//! The generation loop: a prompt in, pieces of text out.

mod error;
mod options;
mod summary;

pub use error::GenerateError;
pub use options::{Cancel, Options};
pub use summary::{FinishReason, Summary};

use crate::detokenize::{Decode, Detokenizer};
use crate::sample::Sampler;
use crate::session::{Session, SessionError};
use crate::stop::StopMatcher;
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket, Tokens, Want};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Tokens of a prompt that one step processes; between steps a reply can be cancelled.
const PREFILL_CHUNK: usize = 512;

/// Something that happened in a generation.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// More text, never empty.
    Text(String),
    /// The end.
    Finished(Summary),
}

/// A reply being generated: an iterator of [`Event`]s that ends after [`Event::Finished`] or an
/// error.
///
/// When it has finished or is dropped, the sequence holds the part of the prompt that was processed
/// and every generated token but the last. Greedy tokens are chosen by the runtime, and the step
/// after a token is submitted before the token is read; whatever ran ahead is cut off at the end.
pub struct Generation<'a> {
    session: &'a mut dyn Session,
    decode: &'a dyn Decode,
    sequence: SequenceId,
    options: &'a Options,
    cancel: Cancel,
    /// `None` where the runtime chooses the tokens.
    sampler: Option<Sampler>,
    detokenizer: Detokenizer,
    stop: StopMatcher,
    /// The prompt and the generated tokens.
    tokens: Vec<u32>,
    /// How many of the tokens are the prompt.
    prompt: usize,
    /// How many tokens of the prompt the sequence held before.
    cached: usize,
    /// How many tokens of the prompt were submitted or held.
    prefilled: usize,
    /// Submitted steps that give a token, oldest first.
    in_flight: VecDeque<Ticket>,
    started: Instant,
    first_token: Option<Duration>,
    outcome: Option<FinishReason>,
    done: bool,
}

impl<'a> Generation<'a> {
    /// Starts a reply to `prompt`, whose first tokens are those that `sequence` holds already.
    ///
    /// # Errors
    /// If the sequence leaves no token of the prompt to process, the prompt does not fit into the
    /// context, or an option is out of its range.
    pub fn new(
        session: &'a mut dyn Session,
        decode: &'a dyn Decode,
        sequence: SequenceId,
        prompt: &[u32],
        options: &'a Options,
        cancel: Cancel,
    ) -> Result<Self, GenerateError> {
        let cached = session.length(sequence)?;
        let (tokens, context) = (prompt.len(), session.limits().context);
        if tokens <= cached {
            return Err(GenerateError::EmptyPrompt);
        }
        if tokens > context {
            return Err(GenerateError::PromptTooLong { tokens, context });
        }
        let sampler = Sampler::new(options.sampling.clone())?;
        Ok(Self {
            session,
            decode,
            sequence,
            cancel,
            sampler: (!options.sampling.is_greedy()).then_some(sampler),
            detokenizer: Detokenizer::new(),
            stop: StopMatcher::new(options.stop.iter().cloned()),
            options,
            tokens: prompt.to_vec(),
            prompt: prompt.len(),
            cached,
            prefilled: cached,
            in_flight: VecDeque::new(),
            started: Instant::now(),
            first_token: None,
            outcome: None,
            done: false,
        })
    }

    /// Runs until there is something to tell.
    fn advance(&mut self) -> Result<Event, GenerateError> {
        while self.outcome.is_none() {
            let text = match self.reason_to_end() {
                Some(reason) => self.end(reason)?,
                None if self.prefilled < self.prompt => {
                    self.prefill()?;
                    continue;
                }
                None => {
                    let token = self.next_token()?;
                    self.accept(token)
                }
            };
            if !text.is_empty() {
                return Ok(Event::Text(text));
            }
        }
        self.done = true;
        Ok(Event::Finished(self.summary()))
    }

    fn reason_to_end(&self) -> Option<FinishReason> {
        let (total, context) = (self.tokens.len(), self.session.limits().context);
        let last = self.tokens[self.prompt..].last();
        let ended = last.is_some_and(|token| self.options.end_tokens.contains(token));
        if ended || self.stop.stopped() {
            Some(FinishReason::Stop)
        } else if total - self.prompt >= self.options.max_tokens {
            Some(FinishReason::Length)
        } else if total > context {
            Some(FinishReason::Context)
        } else if self.cancel.is_set() {
            Some(FinishReason::Cancelled)
        } else {
            None
        }
    }

    /// Submits the next chunk of the prompt, and waits for it unless it gives the first token.
    fn prefill(&mut self) -> Result<(), GenerateError> {
        let end = self.prompt.min(self.prefilled + PREFILL_CHUNK);
        let last = end == self.prompt;
        let row = Row {
            sequence: self.sequence,
            tokens: Tokens::Given(&self.tokens[self.prefilled..end]),
            want: if last { self.want() } else { Want::Nothing },
        };
        let ticket = self.session.submit(&[row])?;
        self.prefilled = end;
        if last {
            self.in_flight.push_back(ticket);
        } else {
            self.session.wait(ticket)?;
        }
        Ok(())
    }

    fn want(&self) -> Want {
        match self.sampler {
            Some(_) => Want::Logits,
            None => Want::Token,
        }
    }

    fn next_token(&mut self) -> Result<u32, GenerateError> {
        self.submit_ahead()?;
        let ticket = self
            .in_flight
            .pop_front()
            .ok_or(SessionError::TicketOrder)?;
        let outputs = self.session.wait(ticket)?;
        let token = match (outputs.first(), &mut self.sampler) {
            (Some(&RowOutput::Token(token)), None) => token,
            (Some(RowOutput::Logits(logits)), Some(sampler)) => {
                let known = logits.len().min(self.decode.vocabulary());
                sampler.choose(&logits[..known], &self.tokens)?
            }
            _ => return Err(GenerateError::MissingOutput),
        };
        self.first_token
            .get_or_insert_with(|| self.started.elapsed());
        Ok(token)
    }

    /// Submits steps while their token is known or chosen by the runtime: two are in flight when
    /// greedy, one otherwise. None is submitted whose token could not be used.
    fn submit_ahead(&mut self) -> Result<(), GenerateError> {
        let most = if self.sampler.is_none() { 2 } else { 1 };
        while self.in_flight.len() < most {
            let total = self.tokens.len() + self.in_flight.len();
            let needless = total - self.prompt >= self.options.max_tokens;
            if needless || total > self.session.limits().context {
                break;
            }
            let tokens = match self.sampler {
                None => Tokens::Chosen,
                Some(_) => Tokens::Given(&self.tokens[self.tokens.len() - 1..]),
            };
            let row = Row {
                sequence: self.sequence,
                tokens,
                want: self.want(),
            };
            let ticket = self.session.submit(&[row])?;
            self.in_flight.push_back(ticket);
        }
        Ok(())
    }

    /// Records a token and returns the text that it made certain.
    fn accept(&mut self, token: u32) -> String {
        self.tokens.push(token);
        match self.options.end_tokens.contains(&token) {
            true => String::new(),
            false => {
                let text = self.detokenizer.push(self.decode, token);
                self.stop.push(&text)
            }
        }
    }

    /// Ends the reply; returns the text that was held back.
    fn end(&mut self, reason: FinishReason) -> Result<String, GenerateError> {
        self.settle()?;
        let mut text = self.stop.push(&self.detokenizer.finish(self.decode));
        text += &self.stop.finish();
        let stopped = self.stop.stopped();
        self.outcome = Some(if stopped { FinishReason::Stop } else { reason });
        Ok(text)
    }

    /// Waits for what is in flight and cuts off what ran ahead.
    fn settle(&mut self) -> Result<(), SessionError> {
        while let Some(ticket) = self.in_flight.pop_front() {
            self.session.wait(ticket)?;
        }
        let generated = self.tokens.len() - self.prompt;
        let keep = self.prefilled + generated.saturating_sub(1);
        if self.session.length(self.sequence)? > keep {
            match self.session.truncate(self.sequence, keep) {
                // What ran ahead was fed the reply's last token, which then stays.
                Err(SessionError::Indivisible { length, .. }) if length <= self.tokens.len() => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        let elapsed = self.started.elapsed();
        Summary {
            reason: self.outcome.unwrap_or(FinishReason::Cancelled),
            prompt_tokens: self.prompt,
            cached_tokens: self.cached,
            tokens: self.tokens[self.prompt..].to_vec(),
            time_to_first_token: self.first_token.unwrap_or(elapsed),
            time: elapsed,
        }
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let event = self.advance();
        self.done |= event.is_err();
        Some(event)
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            // An error here was reported by the step that met it, or will be by the next one.
            let _ = self.settle();
        }
    }
}

#[cfg(test)]
mod tests;
