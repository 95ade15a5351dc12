//! A namespace that holds itself could not be printed, compared or freed: no namespace is put into
//! another, in whatever it is wrapped.

use minijinja::value::{ObjectRepr, Value};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// The values that a rendering may look at here; what makes as many costs all of its work.
const MOST: u64 = super::FUEL;

thread_local! {
    /// Those that it has looked at. Each rendering has a thread of its own.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// The filter that gives back what holds no namespace, and refuses what does.
pub(super) fn plain(value: Value) -> Result<Value, Error> {
    let mut left = vec![value.clone()];
    while let Some(value) = left.pop() {
        let seen = SEEN.get() + 1;
        SEEN.set(seen);
        let Some(object) = value.as_object() else {
            continue;
        };
        if seen > MOST {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        if object.type_name().ends_with("::Namespace") {
            let reason = "a namespace cannot be put into another one";
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        match object.repr() {
            ObjectRepr::Map => {
                for (name, value) in object.try_iter_pairs().into_iter().flatten() {
                    left.extend([name, value]);
                }
            }
            ObjectRepr::Seq | ObjectRepr::Iterable => {
                left.extend(object.try_iter().into_iter().flatten());
            }
            _ => {}
        }
    }
    Ok(value)
}
