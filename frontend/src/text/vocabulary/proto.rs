//! Protocol buffers, as far as SentencePiece's files need them: fields of a message in order.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    /// A number or truth value.
    Number(u64),
    /// Four bytes.
    Fixed([u8; 4]),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message: number and value. Eight-byte fields are skipped.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for at in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The next field, `None` where the message is broken.
    fn field(&mut self) -> Option<(u64, Option<Field<'a>>)> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Some(Field::Number(self.number()?)),
            1 => self.take(8).map(|_| None)?,
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Some(Field::Bytes(self.take(length)?))
            }
            5 => Some(Field::Fixed(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let left = self.rest.len();
            match self.field() {
                Some((number, Some(value))) => return Some(Ok((number, value))),
                Some((_, None)) => {}
                None => {
                    self.rest = &[];
                    let reason = format!(
                        "is not a SentencePiece model: broken {left} bytes before the end of a message"
                    );
                    return Some(Err(reason));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_breaks_are_told() {
        let check = |bytes: &[u8], expect: Option<&[(u64, Field<'_>)]>| {
            let read: Result<Vec<_>, _> = Fields::new(bytes).collect();
            assert_eq!(read.ok().as_deref(), expect, "{bytes:?}");
        };
        check(&[], Some(&[]));
        check(&[0x08, 0x96, 0x01], Some(&[(1, Field::Number(150))]));
        check(
            &[0x12, 2, 7, 8, 0x1d, 0, 0, 0x80, 0x3f],
            Some(&[
                (2, Field::Bytes(&[7, 8])),
                (3, Field::Fixed(1f32.to_le_bytes())),
            ]),
        );
        // Eight bytes are skipped.
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], Some(&[]));
        check(&[0x12, 3, 7], None);
        check(&[0x08], None);
        check(&[0x0b], None);
        check(
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
            None,
        );
        check(
            &[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
            None,
        );
    }
}
