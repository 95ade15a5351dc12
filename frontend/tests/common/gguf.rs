//! Writing small GGUF files.

#![allow(dead_code, reason = "each test file uses a part")]

/// A GGUF file in the making.
#[derive(Clone, Default)]
pub(crate) struct Writer {
    metadata: Vec<u8>,
    entries: u64,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

impl Writer {
    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        text(&mut self.metadata, key);
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(value);
        self.entries += 1;
        self
    }

    pub(crate) fn size(self, key: &str, value: usize) -> Self {
        self.entry(key, 4, &(value as u32).to_le_bytes())
    }

    pub(crate) fn number(self, key: &str, value: f32) -> Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.entry(key, 8, &bytes)
    }

    pub(crate) fn texts(self, key: &str, values: &[&str]) -> Self {
        let mut bytes = 8u32.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        for value in values {
            text(&mut bytes, value);
        }
        self.entry(key, 9, &bytes)
    }

    /// A tensor with dimensions from the outermost to the fastest.
    pub(crate) fn tensor(mut self, name: &str, shape: &[usize], kind: u32, bytes: Vec<u8>) -> Self {
        let dims = shape.iter().rev().map(|&dim| dim as u64).collect();
        self.tensors.push((name.into(), dims, kind, bytes));
        self
    }

    /// The model in `count` files, as llama.cpp splits one: the metadata are in the first.
    pub(crate) fn split(mut self, count: usize) -> Vec<Vec<u8>> {
        let tensors = std::mem::take(&mut self.tensors);
        let each = tensors.len().div_ceil(count);
        let parts = (0..count).map(|number| {
            let part = match number {
                0 => self.clone(),
                _ => Self::default(),
            };
            let mut part = part
                .entry("split.no", 2, &(number as u16).to_le_bytes())
                .entry("split.count", 2, &(count as u16).to_le_bytes())
                .entry(
                    "split.tensors.count",
                    5,
                    &(tensors.len() as i32).to_le_bytes(),
                );
            let own = tensors.iter().skip(number * each).take(each);
            part.tensors = own.cloned().collect();
            part.finish()
        });
        parts.collect()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(&self.metadata);
        let mut offset = 0u64;
        for (name, dims, kind, data) in &self.tensors {
            text(&mut bytes, name);
            bytes.extend((dims.len() as u32).to_le_bytes());
            for dim in dims {
                bytes.extend(dim.to_le_bytes());
            }
            bytes.extend(kind.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            offset += data.len().next_multiple_of(32) as u64;
        }
        for (_, _, _, data) in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes.extend(data);
        }
        bytes
    }
}
