//! Which slot of a segment's memory holds which value.

use super::KernelStep;
use super::rows;
use super::segment::{Inner, Place};
use std::collections::HashMap;

/// The layout of a segment.
pub(super) struct Slots {
    /// Values that it reads from outside, in the order of [`Place::Input`].
    pub(super) inputs: Vec<usize>,
    /// Values that others see; the value of slot `i` for each of the first slots.
    pub(super) exports: Vec<usize>,
    pub(super) inner: Vec<Inner>,
    pub(super) slots: usize,
}

/// Lays out `steps`, of whose results others see those that are `exported`.
pub(super) fn allocate(steps: Vec<KernelStep>, exported: impl Fn(usize) -> bool) -> Slots {
    let results = steps.iter().flat_map(|step| &step.results);
    let exports: Vec<usize> = results.copied().filter(|&value| exported(value)).collect();
    let mut allocator = Allocator {
        places: exports
            .iter()
            .enumerate()
            .map(|(slot, &value)| (value, Place::Slot(slot)))
            .collect(),
        last: last_reads(&steps),
        inputs: Vec::new(),
        free: Vec::new(),
        slots: exports.len(),
        own: exports.len(),
    };
    let mut inner = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        inner.extend(allocator.step(number, step));
    }
    Slots {
        inputs: allocator.inputs,
        exports,
        inner,
        slots: allocator.slots,
    }
}

/// The number of the last step that reads each value.
fn last_reads(steps: &[KernelStep]) -> HashMap<usize, usize> {
    let mut last = HashMap::new();
    for (number, step) in steps.iter().enumerate().rev() {
        for &operand in &step.operands {
            last.entry(operand).or_insert(number);
        }
        // What a view of a value keeps alive, the value itself does.
        if step.kernel.is_none() {
            let end = step.results.iter().filter_map(|result| last.get(result));
            if let Some(&end) = end.max() {
                for &operand in &step.operands {
                    let known = last.entry(operand).or_insert(end);
                    *known = (*known).max(end);
                }
            }
        }
    }
    last
}

struct Allocator {
    places: HashMap<usize, Place>,
    last: HashMap<usize, usize>,
    inputs: Vec<usize>,
    free: Vec<usize>,
    slots: usize,
    /// The first slot that is not an export's.
    own: usize,
}

impl Allocator {
    /// Where `value` is; one that no step made comes from outside.
    fn find(&mut self, value: usize) -> Place {
        *self.places.entry(value).or_insert_with(|| {
            self.inputs.push(value);
            Place::Input(self.inputs.len() - 1)
        })
    }

    fn slot_for(&mut self, value: usize) -> usize {
        if let Some(Place::Slot(slot)) = self.places.get(&value) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.places.insert(value, Place::Slot(slot));
        slot
    }

    fn step(&mut self, number: usize, step: KernelStep) -> Option<Inner> {
        let reads: Box<[(Place, usize)]> = step
            .operands
            .iter()
            .map(|&value| (self.find(value), value))
            .collect();
        let inner = match (step.kernel, &reads[..], &step.results[..]) {
            (Some(kernel), ..) => {
                let writes = step.results.iter();
                let writes = writes.map(|&value| (self.slot_for(value), value)).collect();
                Some(Inner {
                    kernel,
                    reads,
                    writes,
                })
            }
            // A view needs no step, unless others want the elements in a place of their own.
            (None, &[(place, _)], &[result]) if !self.places.contains_key(&result) => {
                self.places.insert(result, place);
                None
            }
            (None, ..) => {
                let writes = step.results.iter();
                let writes = writes.map(|&value| (self.slot_for(value), value)).collect();
                Some(Inner {
                    kernel: Box::new(rows::copy("a copy".into())),
                    reads,
                    writes,
                })
            }
        };
        let view = inner.is_none();
        for value in step.operands.iter().chain(&step.results) {
            let ends = self.last.get(value).copied().unwrap_or(number) <= number;
            let place = self.places.get(value).copied();
            if let (true, false, Some(Place::Slot(slot))) = (ends, view, place)
                && slot >= self.own
                && !self.free.contains(&slot)
                && !self.lives(slot, number)
            {
                self.free.push(slot);
            }
        }
        inner
    }

    /// Whether a value in `slot` is read after step `number`.
    fn lives(&self, slot: usize, number: usize) -> bool {
        self.places.iter().any(|(value, &place)| {
            place == Place::Slot(slot) && self.last.get(value).is_some_and(|&last| last > number)
        })
    }
}
