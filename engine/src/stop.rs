//! Stop strings over streamed text.

/// Passes text through until a stop string completes, never any part of the stop string itself.
///
/// It holds back the shortest text that may still turn out to be the start of a stop string. How
/// the text is cut into pieces does not matter: the stop string that completes first ends the text,
/// and of several that complete at once the longest.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    strings: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopMatcher {
    /// A matcher for `strings`; empty ones never match.
    pub fn new(strings: impl IntoIterator<Item = String>) -> Self {
        Self {
            strings: strings.into_iter().filter(|s| !s.is_empty()).collect(),
            held: String::new(),
            stopped: false,
        }
    }

    /// Whether a stop string has completed.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the next piece of text and returns what may be shown. Nothing may after a stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        let completions = self.strings.iter().filter_map(|string| {
            let start = self.held.find(string.as_str())?;
            Some((start + string.len(), start))
        });
        if let Some((_, start)) = completions.min() {
            self.stopped = true;
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let kept = self.held.split_off(self.safe());
        std::mem::replace(&mut self.held, kept)
    }

    /// Ends the text and returns what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the held text before its longest suffix that starts a stop string.
    fn safe(&self) -> usize {
        let longest = self.strings.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        let starts = |&start: &usize| {
            self.held
                .get(start..)
                .is_some_and(|rest| self.strings.iter().any(|s| s.starts_with(rest)))
        };
        (from..self.held.len())
            .find(starts)
            .unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes `pieces`; returns what each push and the end showed, and whether a stop string came.
    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut matcher = StopMatcher::new(stops.iter().map(|s| s.to_string()));
        let mut shown: Vec<String> = pieces.iter().map(|piece| matcher.push(piece)).collect();
        shown.push(matcher.finish());
        (shown, matcher.stopped())
    }

    #[test]
    fn pieces() {
        let check = |stops: &[&str], pieces: &[&str], expect: &[&str], stopped| {
            let (shown, found) = run(stops, pieces);
            assert_eq!(shown, expect, "{stops:?} {pieces:?}");
            assert_eq!(found, stopped, "{stops:?} {pieces:?}");
        };
        check(&[], &["a", "b"], &["a", "b", ""], false);
        check(&[""], &["a"], &["a", ""], false);
        check(
            &["END"],
            &["some EN", "D more", "x"],
            &["some ", "", "", ""],
            true,
        );
        check(
            &["END"],
            &["some EN", "TER"],
            &["some ", "ENTER", ""],
            false,
        );
        check(&["END"], &["E", "EN"], &["", "E", "EN"], false);
        check(
            &["\n\n"],
            &["a\n", "b\n", "\n"],
            &["a", "\nb", "", ""],
            true,
        );
        // Only what can still match is held.
        check(&["aab"], &["aaa", "b"], &["a", "", ""], true);
        // The first to complete wins; of two that complete at once, the longest.
        check(&["abcd", "bc"], &["xabcd"], &["xa", ""], true);
        check(&["bc", "abc"], &["xabc"], &["x", ""], true);
        // Bytes of a longer character are no match.
        check(
            &["é"],
            &["e", "\u{e8}", "é"],
            &["e", "\u{e8}", "", ""],
            true,
        );
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            text in "[abé]{0,30}",
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.retain(|&cut| text.is_char_boundary(cut));
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (shown, stopped) = run(&stops, &pieces);
            let shown = shown.concat();

            // The definition, by looking at every prefix of the text.
            let ends = (0..=text.len()).filter(|&end| text.is_char_boundary(end));
            let start = ends
                .filter_map(|end| {
                    let matches = stops.iter().filter(|s| text[..end].ends_with(**s));
                    matches.map(|s| end - s.len()).min()
                })
                .next();
            prop_assert_eq!(stopped, start.is_some());
            prop_assert_eq!(shown, &text[..start.unwrap_or(text.len())]);
        }
    }
}
