//! The table of the library's functions, and the macros that declare what goes through it.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Why IREE's compiler library could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is missing or is no library for this machine.
    #[error("cannot load IREE's compiler library `{}`: {message}", path.display())]
    Open {
        /// The library.
        path: PathBuf,
        /// What the system's loader said.
        message: String,
    },
    /// The library is of another version.
    #[error(
        "`{}` lacks {count} functions of IREE's compiler, the first being `{first}`: \
         install iree-base-compiler {}",
        path.display(), crate::compiler::VERSION
    )]
    Functions {
        /// The library.
        path: PathBuf,
        /// Name of the first missing function.
        first: String,
        /// How many are missing.
        count: usize,
    },
}

/// A function's place in the table.
pub(crate) struct Entry {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Entry {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The function's address.
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            end(self.name, "was called before the library was loaded");
        }
        address
    }
}

/// Ends the process: a C function that cannot do its work has no other way out.
pub(crate) fn end(name: &CStr, reason: &str) -> ! {
    eprintln!("`{}` {reason}", name.to_string_lossy());
    std::process::abort()
}

/// Declares functions that forward to the library, and the entries that they forward through.
macro_rules! forwarded {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        mod entries {
            $(
                #[allow(non_upper_case_globals)]
                pub(super) static $name: $crate::table::Entry = $crate::table::Entry::new(
                    match std::ffi::CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes(),
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name with a zero byte"),
                    },
                );
            )*
        }

        pub(crate) static ENTRIES: &[&$crate::table::Entry] = &[$(&entries::$name),*];

        $(
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                let address = entries::$name.address();
                // SAFETY: `load` stored the address of the library's function of this name, whose
                // type is the one declared here; the caller keeps that function's contract.
                unsafe {
                    let function: unsafe extern "C" fn($($type),*) $(-> $result)? =
                        std::mem::transmute(address);
                    function($($argument),*)
                }
            }
        )*
    };
}

/// Declares functions that melior names and the library does not export.
macro_rules! absent {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            #[allow(unused_variables)]
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                let name = concat!(stringify!($name), "\0").as_bytes();
                $crate::table::end(
                    std::ffi::CStr::from_bytes_with_nul(name).unwrap_or_default(),
                    "is not part of IREE's compiler library",
                )
            }
        )*
    };
}

pub(crate) use {absent, forwarded};

static LOADED: Mutex<bool> = Mutex::new(false);

/// Whether [`load`] succeeded.
pub fn is_loaded() -> bool {
    *LOADED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Loads IREE's compiler library, for the rest of the process. Later calls do nothing.
///
/// # Errors
/// A file that cannot be loaded, or that is a library without the functions needed.
pub fn load(path: &Path) -> Result<(), LoadError> {
    let mut loaded = LOADED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if *loaded {
        return Ok(());
    }
    // SAFETY: the library's initialisers only register LLVM's static tables.
    let library = unsafe { libloading::Library::new(path) }.map_err(|error| LoadError::Open {
        path: path.to_path_buf(),
        message: error.to_string(),
    })?;
    let entries = [crate::functions::ENTRIES, crate::compiler::raw::ENTRIES];
    let mut addresses = Vec::new();
    let mut missing = Vec::new();
    for entry in entries.into_iter().flatten() {
        // SAFETY: the symbol is a function; its address alone is taken here.
        match unsafe { library.get::<unsafe extern "C" fn()>(entry.name) } {
            Ok(symbol) => addresses.push((entry, *symbol as *mut c_void)),
            Err(_) => missing.push(entry.name),
        }
    }
    if let Some(first) = missing.first() {
        return Err(LoadError::Functions {
            path: path.to_path_buf(),
            first: first.to_string_lossy().into_owned(),
            count: missing.len(),
        });
    }
    for (entry, address) in addresses {
        entry.address.store(address, Ordering::Release);
    }
    // The compiler keeps threads and static state: it cannot be unloaded.
    std::mem::forget(library);
    crate::compiler::initialize();
    *loaded = true;
    Ok(())
}
