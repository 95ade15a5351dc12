use super::*;
use crate::Thread;
use crate::detokenize::TokenKind;
use crate::sample::Sampling;
use crate::session::{Limits, Statistics};
use mlxcel_ir::step::SequenceId;
use proptest::prelude::*;

/// Letters: token n is the n-th letter, 26 ends the text, 27 to 29 are the bytes of a euro sign.
struct Letters;

const END: u32 = 26;
const EURO: [u32; 3] = [27, 28, 29];

impl Decode for Letters {
    fn decode(&self, tokens: &[u32]) -> String {
        let byte = |&token: &u32| match token {
            0..=25 => Some(b'a' + token as u8),
            27..30 => Some([0xe2, 0x82, 0xac][token as usize - 27]),
            _ => None,
        };
        let bytes: Vec<u8> = tokens.iter().filter_map(byte).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn vocabulary(&self) -> usize {
        30
    }

    fn kind(&self, token: u32) -> TokenKind {
        match token {
            END | 30.. => TokenKind::Silent,
            _ => TokenKind::Text,
        }
    }
}

/// A session with one sequence whose next token depends on its length only.
struct Script {
    /// The token that follows a sequence of n tokens is the n-th.
    next: Vec<u32>,
    context: usize,
    /// The sequence's tokens.
    held: Vec<u32>,
    chosen: Option<u32>,
    outstanding: VecDeque<(u64, RowOutput)>,
    submitted: u64,
    /// Sizes of the steps.
    steps: Vec<usize>,
    /// A step that fails when it is waited for, by its ticket.
    fails: Option<u64>,
    /// Whether the sequence has memories.
    indivisible: bool,
}

impl Script {
    /// A session that answers a prompt of `prompt` tokens with `reply`.
    fn new(prompt: usize, reply: &[u32], context: usize) -> Self {
        let mut next = vec![0; prompt.saturating_sub(1)];
        next.extend(reply);
        Self {
            next,
            context,
            held: Vec::new(),
            chosen: None,
            outstanding: VecDeque::new(),
            submitted: 0,
            steps: Vec::new(),
            fails: None,
            indivisible: false,
        }
    }
}

impl Session for Script {
    fn limits(&self) -> Limits {
        Limits {
            context: self.context,
            vocabulary: 32,
            rows: 1,
        }
    }

    fn create(&mut self) -> Result<SequenceId, SessionError> {
        Ok(SequenceId(0))
    }

    fn fork(&mut self, _: SequenceId) -> Result<SequenceId, SessionError> {
        Err(SessionError::Rows { most: 1 })
    }

    fn truncate(&mut self, _: SequenceId, length: usize) -> Result<(), SessionError> {
        assert!(length <= self.held.len());
        assert!(self.outstanding.is_empty(), "cut while a step runs");
        if self.indivisible && length > 0 && length < self.held.len() {
            return Err(SessionError::Indivisible {
                length: self.held.len(),
                to: length,
            });
        }
        self.held.truncate(length);
        self.chosen = None;
        Ok(())
    }

    fn release(&mut self, _: SequenceId) -> Result<(), SessionError> {
        Ok(())
    }

    fn length(&self, _: SequenceId) -> Result<usize, SessionError> {
        Ok(self.held.len())
    }

    fn save(&mut self, _: SequenceId) -> Result<Vec<u8>, SessionError> {
        Ok(Vec::new())
    }

    fn restore(&mut self, _: &[u8]) -> Result<SequenceId, SessionError> {
        self.create()
    }

    fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, SessionError> {
        let [row] = rows else {
            return Err(SessionError::Rows { most: 1 });
        };
        let tokens = match row.tokens {
            Tokens::Given(tokens) => tokens.to_vec(),
            Tokens::Chosen => vec![self.chosen.expect("a chosen token")],
        };
        self.steps.push(tokens.len());
        self.held.extend(tokens);
        assert!(self.held.len() <= self.context, "the context is exceeded");
        let next = self.next.get(self.held.len() - 1).copied().unwrap_or(0);
        let output = match row.want {
            Want::Nothing => RowOutput::Nothing,
            Want::Token => RowOutput::Token(next),
            Want::Logits | Want::AllLogits => {
                let mut logits = vec![0.0; 32];
                logits[next as usize] = 100.0;
                // Padding of the vocabulary, never to be drawn.
                logits[31] = 1000.0;
                RowOutput::Logits(logits)
            }
        };
        self.chosen = (row.want == Want::Token).then_some(next);
        self.submitted += 1;
        self.outstanding.push_back((self.submitted, output));
        Ok(Ticket(self.submitted))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, SessionError> {
        let (oldest, output) = self.outstanding.pop_front().expect("a step in flight");
        assert_eq!(ticket.0, oldest);
        match self.fails == Some(oldest) {
            true => Err(SessionError::runtime("the device is lost")),
            false => Ok(vec![output]),
        }
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| u32::from(byte - b'a')).collect()
}

fn sampled() -> Sampling {
    Sampling {
        temperature: 0.5,
        ..Sampling::default()
    }
}

/// Runs to the end; returns the pieces of text and the summary.
fn run(script: &mut Script, prompt: &[u32], options: &Options) -> (Vec<String>, Summary) {
    let cancel = Cancel::default();
    let generation = Generation::new(script, &Letters, SequenceId(0), prompt, options, cancel);
    let mut pieces = Vec::new();
    for event in generation.expect("a prompt that fits") {
        match event.expect("no failure") {
            Event::Text(text) => pieces.push(text),
            Event::Finished(summary) => return (pieces, summary),
        }
    }
    panic!("ended without a summary");
}

#[test]
fn a_reply_ends_for_each_reason() {
    let check = |reply: &[u32], context, options: Options, text: &str, tokens: usize, reason| {
        for sampling in [Sampling::default(), sampled()] {
            let options = Options {
                sampling,
                end_tokens: vec![END],
                ..options.clone()
            };
            let mut script = Script::new(3, reply, context);
            let (pieces, summary) = run(&mut script, &[1, 2, 3], &options);
            assert_eq!(pieces.concat(), text);
            assert_eq!(summary.tokens, reply[..tokens]);
            assert_eq!(summary.reason, reason, "{text}");
            assert_eq!((summary.prompt_tokens, summary.cached_tokens), (3, 0));
            let held: Vec<u32> = [1, 2, 3]
                .iter()
                .chain(&reply[..tokens - 1])
                .copied()
                .collect();
            assert_eq!(script.held, held);
            assert!(script.outstanding.is_empty());
        }
    };
    let hello = [letters("hello"), vec![END, 1, 1, 1]].concat();
    let plain = Options::default;
    check(&hello, 100, plain(), "hello", 6, FinishReason::Stop);
    check(
        &hello,
        100,
        Options {
            max_tokens: 2,
            ..plain()
        },
        "he",
        2,
        FinishReason::Length,
    );
    check(
        &hello,
        100,
        Options {
            max_tokens: 1,
            ..plain()
        },
        "h",
        1,
        FinishReason::Length,
    );
    let stop = |stop: &str| Options {
        stop: vec![stop.into()],
        ..plain()
    };
    check(&hello, 100, stop("lo"), "hel", 5, FinishReason::Stop);
    check(&hello, 100, stop("l"), "he", 3, FinishReason::Stop);
    check(&hello, 100, stop("lox"), "hello", 6, FinishReason::Stop);
    // A context of 5 holds the prompt and two tokens; the third needs no room.
    check(&hello, 5, plain(), "hel", 3, FinishReason::Context);
    check(&hello, 3, plain(), "h", 1, FinishReason::Context);
    let euro = [&EURO[..], &[0, END]].concat();
    check(&euro, 100, plain(), "€a", 5, FinishReason::Stop);
    check(
        &euro,
        100,
        Options {
            max_tokens: 2,
            ..plain()
        },
        "\u{fffd}",
        2,
        FinishReason::Length,
    );
}

#[test]
fn no_token_of_text_gives_no_text() {
    let options = Options {
        end_tokens: vec![END],
        ..Options::default()
    };
    let (pieces, summary) = run(&mut Script::new(1, &[END], 10), &[5], &options);
    assert_eq!((pieces.len(), summary.tokens), (0, vec![END]));
    let none = Options {
        max_tokens: 0,
        ..Options::default()
    };
    let mut script = Script::new(1, &[0], 10);
    let (pieces, summary) = run(&mut script, &[5], &none);
    assert_eq!((pieces.len(), summary.tokens.len()), (0, 0));
    assert_eq!(summary.reason, FinishReason::Length);
    assert_eq!(script.steps.len(), 0);
}

#[test]
fn a_long_prompt_comes_in_chunks_after_what_is_cached() {
    let prompt: Vec<u32> = (0..1200).map(|i| i % 26).collect();
    let mut script = Script::new(1200, &letters("ok"), 2000);
    script.held = prompt[..10].to_vec();
    let options = Options {
        max_tokens: 2,
        ..Options::default()
    };
    let (pieces, summary) = run(&mut script, &prompt, &options);
    assert_eq!(pieces.concat(), "ok");
    assert_eq!((summary.prompt_tokens, summary.cached_tokens), (1200, 10));
    assert_eq!(script.steps[..3], [512, 512, 166]);
}

#[test]
fn a_reply_can_be_called_off() {
    let options = Options::default();
    let cancel = Cancel::default();
    let mut script = Script::new(1, &letters("abcdefgh"), 100);
    let sequence = SequenceId(0);
    let mut generation = Generation::new(
        &mut script,
        &Letters,
        sequence,
        &[9],
        &options,
        cancel.clone(),
    )
    .unwrap();
    assert_eq!(generation.next().unwrap().unwrap(), Event::Text("a".into()));
    assert_eq!(generation.next().unwrap().unwrap(), Event::Text("b".into()));
    cancel.set();
    let Some(Ok(Event::Finished(summary))) = generation.next() else {
        panic!("not finished");
    };
    assert_eq!(
        (summary.reason, summary.tokens),
        (FinishReason::Cancelled, letters("ab"))
    );
    assert!(generation.next().is_none());
    drop(generation);
    assert_eq!(script.held, [9, 0]);

    // Called off before its first step.
    let mut script = Script::new(1, &letters("a"), 100);
    let generation = Generation::new(&mut script, &Letters, sequence, &[9], &options, cancel);
    let events: Vec<_> = generation.unwrap().map(Result::unwrap).collect();
    assert!(matches!(&events[..], [Event::Finished(summary)] if summary.tokens.is_empty()));
    assert!(script.held.is_empty());
}

#[test]
fn a_dropped_reply_leaves_its_sequence_clean() {
    let options = Options::default();
    let mut script = Script::new(1, &letters("abcdefgh"), 100);
    let mut generation = Generation::new(
        &mut script,
        &Letters,
        SequenceId(0),
        &[9],
        &options,
        Cancel::default(),
    )
    .unwrap();
    assert_eq!(generation.next().unwrap().unwrap(), Event::Text("a".into()));
    drop(generation);
    assert_eq!(script.held, [9]);
    assert!(script.outstanding.is_empty());
}

#[test]
fn a_sequence_that_cannot_be_cut_keeps_the_last_token_or_begins_anew() {
    for sampling in [Sampling::default(), sampled()] {
        let options = Options {
            sampling,
            end_tokens: vec![letters("d")[0]],
            ..Options::default()
        };
        let mut script = Script::new(2, &letters("abcdefgh"), 100);
        script.indivisible = true;
        let mut thread = Thread::new(&mut script).unwrap();
        let prompt = letters("xy");
        let (_, summary) = run(&mut script, &prompt, &options);
        thread.record(&script, &prompt, &summary.tokens).unwrap();
        let all = letters("xyabcd");
        assert!(script.held.len() >= 5 && all.starts_with(&script.held));
        // What goes on is processed from there, what differs or repeats from the beginning.
        let held = script.held.clone();
        thread.prepare(&mut script, &letters("xyabcde")).unwrap();
        assert_eq!(script.held, held);
        thread.prepare(&mut script, &letters("xyabc")).unwrap();
        assert!(script.held.is_empty());
    }
}

#[test]
fn what_cannot_start_says_why() {
    let check = |held: &[u32], prompt: &[u32], options: &Options, expect: &str| {
        let mut script = Script::new(1, &[], 4);
        script.held = held.to_vec();
        let cancel = Cancel::default();
        let started = Generation::new(
            &mut script,
            &Letters,
            SequenceId(0),
            prompt,
            options,
            cancel,
        );
        let error = started.err().expect("an error").to_string();
        assert!(error.contains(expect), "{error}");
    };
    let plain = Options::default();
    check(&[], &[], &plain, "no tokens");
    check(&[1, 2], &[1, 2], &plain, "no tokens");
    check(
        &[],
        &[0; 5],
        &plain,
        "the prompt has 5 tokens but the context holds 4",
    );
    let hot = Sampling {
        temperature: -1.0,
        ..Sampling::default()
    };
    check(
        &[],
        &[1],
        &Options {
            sampling: hot,
            ..plain
        },
        "temperature is -1",
    );
}

#[test]
fn a_failed_step_ends_the_reply() {
    let options = Options::default();
    let mut script = Script::new(1, &letters("abcdefgh"), 100);
    script.fails = Some(3);
    let generation = Generation::new(
        &mut script,
        &Letters,
        SequenceId(0),
        &[9],
        &options,
        Cancel::default(),
    );
    let events: Vec<_> = generation.unwrap().collect();
    assert_eq!(events.len(), 3);
    let error = events[2]
        .as_ref()
        .expect_err("the third step fails")
        .to_string();
    assert_eq!(error, "the device is lost");
    assert!(script.outstanding.is_empty());
}

proptest! {
    /// However a reply is chosen and cut, text and cache agree with its tokens.
    #[test]
    fn text_and_cache_follow_the_tokens(
        reply in prop::collection::vec(0u32..30, 0..60),
        prompt in 1usize..5,
        room in 0usize..70,
        max_tokens in 0usize..70,
        stop in prop::option::of("[a-e]{1,2}"),
        greedy in any::<bool>(),
    ) {
        let options = Options {
            max_tokens,
            sampling: if greedy { Sampling::default() } else { sampled() },
            stop: stop.iter().cloned().collect(),
            end_tokens: vec![END],
        };
        let prompt = vec![7; prompt];
        let mut script = Script::new(prompt.len(), &reply, prompt.len() + room);
        let (pieces, summary) = run(&mut script, &prompt, &options);
        let text = pieces.concat();
        let whole = Letters.decode(&summary.tokens);
        match stop.as_ref().and_then(|stop| whole.find(stop.as_str())) {
            Some(at) => prop_assert_eq!(text, &whole[..at]),
            None => prop_assert_eq!(text, whole),
        }
        let kept = summary.tokens.len().saturating_sub(1);
        let held = if summary.tokens.is_empty() { Vec::new() } else {
            [&prompt[..], &summary.tokens[..kept]].concat()
        };
        prop_assert_eq!(script.held, held);
    }
}
