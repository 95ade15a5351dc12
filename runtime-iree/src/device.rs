//! Devices: the processors and GPUs that execute compiled modules.

use crate::kernel::Kernels;
use crate::status::{check, text, view};
use crate::{Error, local};
use mlxcel_iree_runtime_sys as sys;
use std::fmt;
use std::num::NonZeroUsize;
use std::ptr;
use std::str::FromStr;
use std::sync::Arc;

/// The environment variable with the number of threads of `local-task`, and of kernels.
pub const THREADS_VARIABLE: &str = "MLXCEL_THREADS";

/// The most worker threads that IREE's task system takes.
pub const MAXIMUM_THREADS: usize = 256;

/// Which device to use. Its text form is `local-task`, `local-sync`, `cuda:1`, `hip:0`,
/// `vulkan:0`; without a number a GPU is the first of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceSpec {
    /// The processor, with a pool of worker threads.
    LocalTask {
        /// How many; none for [`THREADS_VARIABLE`], or else one per processor.
        threads: Option<NonZeroUsize>,
    },
    /// The processor: what a module computes itself runs on the calling thread, and the kernels that it
    /// calls on as many as [`THREADS_VARIABLE`] says, or else one per processor.
    LocalSync,
    /// A GPU.
    Gpu {
        /// Which kind.
        driver: GpuDriver,
        /// Which one of its kind, from 0.
        ordinal: usize,
    },
}

/// Drivers of GPUs. Each is a cargo feature of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuDriver {
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Hip,
    /// Any GPU with a Vulkan driver.
    Vulkan,
}

impl GpuDriver {
    /// Every driver.
    pub const ALL: [GpuDriver; 3] = [GpuDriver::Cuda, GpuDriver::Hip, GpuDriver::Vulkan];

    /// The name in device names, in IREE's registry, and of the cargo feature.
    pub fn name(self) -> &'static str {
        match self {
            GpuDriver::Cuda => "cuda",
            GpuDriver::Hip => "hip",
            GpuDriver::Vulkan => "vulkan",
        }
    }

    /// What to do where the driver cannot be started.
    fn advice(self) -> &'static str {
        match self {
            GpuDriver::Cuda => "it needs libcuda.so of NVIDIA's driver, of CUDA 12 or newer",
            GpuDriver::Hip => "it needs libamdhip64.so of AMD's ROCm, of version 6 or newer",
            GpuDriver::Vulkan => "it needs libvulkan.so.1 and a driver for the GPU",
        }
    }

    /// Whether this build has the driver.
    pub fn is_built(self) -> bool {
        match self {
            GpuDriver::Cuda => cfg!(feature = "cuda"),
            GpuDriver::Hip => cfg!(feature = "hip"),
            GpuDriver::Vulkan => cfg!(feature = "vulkan"),
        }
    }
}

impl Default for DeviceSpec {
    fn default() -> Self {
        DeviceSpec::LocalTask { threads: None }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::LocalTask { .. } => f.write_str("local-task"),
            DeviceSpec::LocalSync => f.write_str("local-sync"),
            DeviceSpec::Gpu { driver, ordinal } => write!(f, "{}:{ordinal}", driver.name()),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownDevice {
            name: name.to_string(),
        };
        match name {
            "local-task" => return Ok(DeviceSpec::LocalTask { threads: None }),
            "local-sync" => return Ok(DeviceSpec::LocalSync),
            _ => {}
        }
        let (kind, ordinal) = name.split_once(':').unwrap_or((name, "0"));
        let driver = GpuDriver::ALL
            .into_iter()
            .find(|driver| driver.name() == kind)
            .ok_or_else(unknown)?;
        let ordinal = ordinal.parse().map_err(|_| unknown())?;
        Ok(DeviceSpec::Gpu { driver, ordinal })
    }
}

/// An open device. Clones share it.
#[derive(Clone)]
pub struct Device(Arc<Handle>);

struct Handle {
    spec: DeviceSpec,
    /// What its driver calls a GPU.
    name: Option<String>,
    device: *mut sys::iree_hal_device_t,
    /// Dropped after the device, which calls them.
    kernels: Kernels,
}

// SAFETY: IREE's devices are reference-counted atomically and documented as thread-safe.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle owns one reference.
        unsafe { sys::iree_hal_device_release(self.device) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.0.spec)
    }
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::DriverNotBuilt`], [`Error::DeviceUnavailable`] (no such device, or the vendor's
    /// library is missing), [`Error::Threads`].
    pub fn open(spec: DeviceSpec) -> Result<Self, Error> {
        if let DeviceSpec::Gpu { driver, .. } = spec
            && !driver.is_built()
        {
            return Err(Error::DriverNotBuilt {
                device: spec.to_string(),
                feature: driver.name().to_string(),
            });
        }
        let unavailable = |message| Error::DeviceUnavailable {
            device: spec.to_string(),
            message,
        };
        let pool = ProactorPool::new().map_err(unavailable)?;
        let threads = match spec {
            DeviceSpec::LocalTask {
                threads: Some(threads),
            } => threads.get(),
            DeviceSpec::LocalTask { threads: None } | DeviceSpec::LocalSync => {
                threads_from_environment()?
            }
            DeviceSpec::Gpu { .. } => 1,
        };
        let kernels = Kernels::new(threads);
        let parameters = pool.parameters();
        let local = |device| (device, None);
        let (device, name) = match spec {
            DeviceSpec::LocalTask { .. } => local::task(threads, &kernels, &parameters).map(local),
            DeviceSpec::LocalSync => local::sync(&kernels, &parameters).map(local),
            DeviceSpec::Gpu { driver, ordinal } => {
                create(driver, ordinal, &parameters).map(|(device, name)| (device, Some(name)))
            }
        }
        .map_err(unavailable)?;
        Ok(Self(Arc::new(Handle {
            spec,
            name,
            device,
            kernels,
        })))
    }

    /// Opens this machine's processor with a thread for each of its cores.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn host() -> Result<Self, Error> {
        Self::open(DeviceSpec::default())
    }

    /// Which device this is.
    pub fn spec(&self) -> DeviceSpec {
        self.0.spec
    }

    /// What its driver calls it, if it is a GPU.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Why a kernel failed since the last question.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.kernels.failure()
    }

    /// IREE's device, valid while `self` lives.
    pub(crate) fn raw(&self) -> *mut sys::iree_hal_device_t {
        self.0.device
    }
}

/// The number of worker threads: [`THREADS_VARIABLE`], or else the processors that this process
/// may use.
fn threads_from_environment() -> Result<usize, Error> {
    let Ok(value) = std::env::var(THREADS_VARIABLE) else {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        return Ok(processors.min(MAXIMUM_THREADS));
    };
    value
        .parse()
        .ok()
        .filter(|threads| (1..=MAXIMUM_THREADS).contains(threads))
        .ok_or(Error::Threads {
            value,
            maximum: MAXIMUM_THREADS,
        })
}

/// The threads on which a device waits for outside events; IREE starts them when first needed.
struct ProactorPool(*mut sys::iree_async_proactor_pool_t);

impl ProactorPool {
    fn new() -> Result<Self, String> {
        let mut pool = ptr::null_mut();
        // SAFETY: plain calls; `pool` receives an owned reference on success.
        check(unsafe {
            sys::iree_async_proactor_pool_create(
                sys::iree_numa_node_count(),
                ptr::null(),
                sys::iree_async_proactor_pool_options_default(),
                sys::iree_allocator_system(),
                &mut pool,
            )
        })?;
        Ok(Self(pool))
    }

    /// Parameters for a device, which retains the pool.
    fn parameters(&self) -> sys::iree_hal_device_create_params_t {
        sys::iree_hal_device_create_params_t {
            next: ptr::null(),
            proactor_pool: self.0,
        }
    }
}

impl Drop for ProactorPool {
    fn drop(&mut self) {
        // SAFETY: owned reference.
        unsafe { sys::iree_async_proactor_pool_release(self.0) }
    }
}

/// Creates the device `ordinal` of a driver that is in IREE's registry, and gives its name as well.
fn create(
    driver: GpuDriver,
    ordinal: usize,
    parameters: &sys::iree_hal_device_create_params_t,
) -> Result<(*mut sys::iree_hal_device_t, String), String> {
    let advice = driver.advice();
    let driver = Driver::new(driver.name()).map_err(|message| format!("{message}; {advice}"))?;
    let mut available = driver.devices()?;
    let count = available.len();
    if ordinal >= count {
        return Err(format!("there are {count} such devices, counted from 0"));
    }
    let name = available.swap_remove(ordinal);
    let mut device = ptr::null_mut();
    // SAFETY: the driver is alive and `device` receives an owned reference on success.
    check(unsafe {
        sys::iree_hal_driver_create_device_by_ordinal(
            driver.driver,
            ordinal as _,
            0,
            ptr::null(),
            parameters,
            sys::iree_allocator_system(),
            &mut device,
        )
    })?;
    Ok((device, name))
}

/// A driver and the registry that it came from.
struct Driver {
    registry: *mut sys::iree_hal_driver_registry_t,
    driver: *mut sys::iree_hal_driver_t,
}

impl Driver {
    fn new(name: &str) -> Result<Self, String> {
        let allocator = sys::iree_allocator_system();
        let mut driver = Self {
            registry: ptr::null_mut(),
            driver: ptr::null_mut(),
        };
        // SAFETY: plain calls; what they create is owned by `driver`, which frees it on error too.
        unsafe {
            check(sys::iree_hal_driver_registry_allocate(
                allocator,
                &mut driver.registry,
            ))?;
            check(sys::iree_hal_register_all_available_drivers(
                driver.registry,
            ))?;
            check(sys::iree_hal_driver_registry_try_create(
                driver.registry,
                view(name),
                allocator,
                &mut driver.driver,
            ))?;
        }
        Ok(driver)
    }

    /// The names of its devices.
    fn devices(&self) -> Result<Vec<String>, String> {
        let allocator = sys::iree_allocator_system();
        let mut count = 0;
        let mut infos = ptr::null_mut();
        // SAFETY: on success `infos` is an array of `count` entries made by `allocator`.
        unsafe {
            check(sys::iree_hal_driver_query_available_devices(
                self.driver,
                allocator,
                &mut count,
                &mut infos,
            ))?;
            let names = (0..count)
                .map(|index| text((*infos.add(index)).name))
                .collect();
            sys::iree_allocator_free(allocator, infos.cast());
            Ok(names)
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: both are owned, or null where their creation failed; IREE ignores a null driver.
        unsafe {
            sys::iree_hal_driver_release(self.driver);
            if !self.registry.is_null() {
                sys::iree_hal_driver_registry_free(self.registry);
            }
        }
    }
}
