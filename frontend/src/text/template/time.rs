//! `datetime.now().strftime(format)` of Python on Linux.

use jiff::Zoned;
use jiff::fmt::strtime;

/// Codes whose meaning is spelled out for the formatter: it either lacks them or means another thing.
/// Python's time has no zone here, so that its codes print nothing.
const SPELLED: [(char, &str); 10] = [
    ('c', "%a %b %e %H:%M:%S %Y"),
    ('x', "%m/%d/%y"),
    ('X', "%H:%M:%S"),
    ('r', "%I:%M:%S %p"),
    ('f', "%6f"),
    ('h', "%b"),
    ('z', ""),
    ('Z', ""),
    ('n', "\n"),
    ('t', "\t"),
];

/// The codes that the C library knows.
const KNOWN: &str = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZf%";

/// `now` by `format`. Codes that nothing knows stay as they are.
pub(super) fn format(format: &str, now: &Zoned) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let code = code(&rest[at..]);
        rest = &rest[at + code.len()..];
        let last = code.chars().next_back().unwrap_or('%');
        if code.len() < 2 || !KNOWN.contains(last) {
            text.push_str(code);
            continue;
        }
        let spelled = SPELLED.iter().find(|(letter, _)| *letter == last);
        let spelled = spelled.map_or(code, |(_, spelled)| spelled);
        match strtime::format(spelled, now) {
            Ok(formatted) => text.push_str(&formatted),
            Err(_) => text.push_str(code),
        }
    }
    text.push_str(rest);
    text
}

/// The code at the start of `text`: `%`, perhaps a flag of the C library (`%-d`), a letter.
fn code(text: &str) -> &str {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        end = at + c.len_utf8();
        if at > 0 && !matches!(c, '-' | '_' | '0' | '^' | '#' | 'E' | 'O') {
            break;
        }
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_they_mean_in_python() {
        let now = jiff::civil::date(2024, 7, 5).at(9, 8, 7, 12_345_000);
        let now = now.to_zoned(jiff::tz::TimeZone::UTC).expect("a time");
        let check = |code: &str, expect: &str| assert_eq!(format(code, &now), expect, "{code}");
        // What Python 3 prints for datetime(2024, 7, 5, 9, 8, 7, 12345) on Linux.
        check("%Y-%m-%d", "2024-07-05");
        check("%d %b %Y", "05 Jul 2024");
        check("%A, %B %d, %Y", "Friday, July 05, 2024");
        check("%a %y %j %U %W %w %u", "Fri 24 187 26 27 5 5");
        check("%H:%M:%S.%f", "09:08:07.012345");
        check("%I:%M %p", "09:08 AM");
        check("%-d %-m %-H %-I %e", "5 7 9 9  5");
        check(
            "%c|%x|%X|%D|%T|%R|%F|%r",
            "Fri Jul  5 09:08:07 2024|07/05/24|09:08:07|07/05/24|09:08:07|09:08|2024-07-05|09:08:07 AM",
        );
        check("%G-W%V", "2024-W27");
        check("%C %h %k %l %P", "20 Jul  9  9 am");
        check("[%z%Z]", "[]");
        check("100%% %n%t|", "100% \n\t|");
        check("%", "%");
        check("é%Qé", "é%Qé");
        check("%s", &now.timestamp().as_second().to_string());
        check("", "");
    }
}
