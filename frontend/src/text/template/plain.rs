//! A namespace that holds itself could not be printed, compared or freed: no namespace is put into
//! another, in whatever it is wrapped.

use minijinja::value::{DynObject, ObjectRepr, Value};
use minijinja::{Error, ErrorKind};
use std::cell::Cell;

/// The values that a rendering may look at here, over all of its assignments;
const SEEN: u64 = 8 * super::FUEL;
/// and those that it may copy, which takes memory.
const COPIED: u64 = super::FUEL / 4;

thread_local! {
    /// What is left of both. Each rendering has a thread of its own.
    static LEFT: Cell<[u64; 2]> = const { Cell::new([SEEN, COPIED]) };
}

/// The filter that gives back what holds no namespace, and refuses what does. What would be computed when it
/// is used (`ns | items`) is computed now, while the namespace does not hold it yet.
pub(super) fn plain(value: Value) -> Result<Value, Error> {
    let mut left = vec![value.clone()];
    let mut computed = false;
    while let Some(value) = left.pop() {
        spend([1, 0])?;
        let Some(object) = value.as_object() else {
            continue;
        };
        check(object)?;
        computed |= !is_stored(&value, object);
        match object.repr() {
            ObjectRepr::Map => {
                for (name, value) in object.try_iter_pairs().into_iter().flatten() {
                    left.extend([name, value]);
                }
            }
            _ => left.extend(object.try_iter().into_iter().flatten()),
        }
    }
    match computed {
        true => copy(&value),
        false => Ok(value),
    }
}

fn spend(cost: [u64; 2]) -> Result<(), Error> {
    let [seen, copied] = LEFT.get();
    match (seen.checked_sub(cost[0]), copied.checked_sub(cost[1])) {
        (Some(seen), Some(copied)) => {
            LEFT.set([seen, copied]);
            Ok(())
        }
        _ => Err(Error::from(ErrorKind::OutOfFuel)),
    }
}

/// Refuses namespaces, and what may hold one out of sight: macros hold what is around them.
fn check(object: &DynObject) -> Result<(), Error> {
    let refused = match object.repr() {
        _ if object.type_name().ends_with("::Namespace") => "a namespace",
        ObjectRepr::Plain => "a function",
        _ if object.type_name().ends_with("::Macro") => "a macro",
        _ => return Ok(()),
    };
    let reason = format!("{refused} cannot be put into a namespace");
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

/// Whether an object has its values, and does not compute them from others.
pub(super) fn is_stored(value: &Value, object: &DynObject) -> bool {
    value.is_tuple()
        || object.is::<Vec<Value>>()
        || object.type_name().contains("IndexMap<")
        || object.type_name().contains("BTreeMap<")
}

fn copy(value: &Value) -> Result<Value, Error> {
    spend([1, 1])?;
    let Some(object) = value.as_object() else {
        return Ok(value.clone());
    };
    check(object)?;
    match object.repr() {
        ObjectRepr::Map => {
            let pairs = object.try_iter_pairs().into_iter().flatten();
            let pairs = pairs.map(|(name, value)| Ok((copy(&name)?, copy(&value)?)));
            pairs
                .collect::<Result<Vec<_>, Error>>()
                .map(Value::from_iter)
        }
        _ => {
            let items = object.try_iter().into_iter().flatten();
            let items = items.map(|item| copy(&item));
            items.collect::<Result<Vec<_>, Error>>().map(Value::from)
        }
    }
}
