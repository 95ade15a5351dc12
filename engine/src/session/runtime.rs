//! What the adapters of both runtimes have in common: the runtimes share one vocabulary, with types
//! of their own.

/// Makes `$session`, which has the fields `runtime`, `context` and `statistics`, a session over the
/// runtime of the crate `$runtime` that takes `$rows` rows a step and has errors of its own as well.
/// The names of [`super::Session`] must be in scope.
macro_rules! session_over {
    ($session:ident, $runtime:ident, $rows:expr $(, $own:pat => $said:expr)*) => {
        impl $session {
            /// What the runtime says, in the words of sessions where they have some.
            fn said(error: $runtime::Error) -> SessionError {
                use SessionError as Said;
                use $runtime::Error;
                match error {
                    Error::UnknownSequence(id) => Said::UnknownSequence(SequenceId(id)),
                    Error::RepeatedSequence(_) => Said::Rows { most: $rows },
                    Error::NoTokens(_) => Said::EmptyRow,
                    Error::UnknownToken { token, vocabulary } => {
                        Said::UnknownToken { token, vocabulary }
                    }
                    Error::NothingChosen(id) => Said::NothingChosen(SequenceId(id)),
                    Error::ContextFull {
                        length,
                        new,
                        capacity,
                        ..
                    } => Said::ContextExceeded {
                        length,
                        new,
                        context: capacity,
                    },
                    Error::Truncate { length, to, .. } => Said::TooShort { length, to },
                    Error::UnknownTicket(_) => Said::TicketOrder,
                    $($own => $said,)*
                    other => Said::runtime(other),
                }
            }
        }

        impl Session for $session {
            fn limits(&self) -> Limits {
                Limits {
                    context: self.context,
                    vocabulary: self.runtime.vocabulary(),
                    rows: $rows,
                }
            }

            fn create(&mut self) -> Result<SequenceId, SessionError> {
                self.runtime.create().map_err(Self::said)
            }

            fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, SessionError> {
                self.runtime.fork(sequence).map_err(Self::said)
            }

            fn truncate(
                &mut self,
                sequence: SequenceId,
                length: usize,
            ) -> Result<(), SessionError> {
                self.runtime.truncate(sequence, length).map_err(Self::said)
            }

            fn release(&mut self, sequence: SequenceId) -> Result<(), SessionError> {
                self.runtime.release(sequence).map_err(Self::said)
            }

            fn length(&self, sequence: SequenceId) -> Result<usize, SessionError> {
                self.runtime.len(sequence).map_err(Self::said)
            }

            fn save(&mut self, sequence: SequenceId) -> Result<Vec<u8>, SessionError> {
                self.runtime.save(sequence).map_err(Self::said)
            }

            fn restore(&mut self, saved: &[u8]) -> Result<SequenceId, SessionError> {
                self.runtime.restore(saved).map_err(Self::said)
            }

            fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, SessionError> {
                if rows.is_empty() || rows.len() > $rows {
                    return Err(SessionError::Rows { most: $rows });
                }
                let ticket = self.runtime.submit(rows).map_err(Self::said)?;
                self.statistics.count(rows);
                Ok(ticket)
            }

            fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, SessionError> {
                self.runtime.wait(ticket).map_err(Self::said)
            }

            fn statistics(&self) -> Statistics {
                self.statistics
            }
        }
    };
}

pub(super) use session_over;
