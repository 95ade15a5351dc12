//! What an artifact was compiled for, and whether a device is that.

use crate::cpu;
use crate::{DeviceSpec, GpuDriver};
use mlxcel_frontend::artifact::Manifest;

/// What an artifact was compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    kind: Kind,
    /// As the user names it, for instance `iree-cuda`.
    name: String,
    chip: String,
    /// Whether most of what a function does is a call of a kernel.
    by_kernels: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cpu,
    Gpu(GpuDriver),
    /// Compiled for, but not run by this runtime.
    Metal,
}

impl Target {
    pub(crate) fn new(manifest: &Manifest) -> Result<Self, String> {
        let kind = match manifest.target.as_str() {
            "iree-cpu" => Kind::Cpu,
            "iree-cuda" => Kind::Gpu(GpuDriver::Cuda),
            "iree-rocm" => Kind::Gpu(GpuDriver::Hip),
            "iree-vulkan" => Kind::Gpu(GpuDriver::Vulkan),
            "iree-metal" => Kind::Metal,
            other => return Err(format!("target: `{other}` is unknown to this build")),
        };
        Ok(Self {
            kind,
            name: manifest.target.clone(),
            chip: manifest.chip.clone(),
            by_kernels: manifest.kernels.saturating_mul(2) > manifest.dispatches,
        })
    }

    /// The device to run on if the user names none.
    pub(crate) fn default_device(&self) -> Result<DeviceSpec, String> {
        match self.kind {
            // Kernels share their work among threads of their own, next to which those of IREE are in
            // the way.
            Kind::Cpu if self.by_kernels => Ok(DeviceSpec::LocalSync),
            Kind::Cpu => Ok(DeviceSpec::default()),
            Kind::Gpu(driver) => Ok(DeviceSpec::Gpu { driver, ordinal: 0 }),
            Kind::Metal => Err(format!(
                "it is compiled for {}, which this runtime has no driver for",
                self.name
            )),
        }
    }

    /// Fails unless the device is what the artifact was compiled for.
    pub(crate) fn check(&self, device: DeviceSpec) -> Result<(), String> {
        let fits = match (self.kind, device) {
            (Kind::Cpu, DeviceSpec::LocalTask { .. } | DeviceSpec::LocalSync) => true,
            (Kind::Gpu(target), DeviceSpec::Gpu { driver, .. }) => target == driver,
            _ => false,
        };
        if !fits {
            return Err(format!(
                "it is compiled for {} ({}) and cannot run on device {device}: name another device \
                 or compile the model for that one",
                self.name, self.chip
            ));
        }
        if self.kind == Kind::Cpu {
            let missing = cpu::missing_features(&self.chip);
            if !missing.is_empty() {
                return Err(format!(
                    "it is compiled for the processor {}, and this one lacks {}: compile the model \
                     on this machine, or with a `--chip` that both have",
                    self.chip,
                    missing.join(", ")
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Kind, name: &str, chip: &str) -> Target {
        Target {
            kind,
            name: name.into(),
            chip: chip.into(),
            by_kernels: false,
        }
    }

    #[test]
    fn tells_devices_apart() {
        let check = |target: &Target, device: &str, expect: Option<&str>| {
            let actual = target.check(device.parse().unwrap());
            match expect {
                None => assert_eq!(actual, Ok(())),
                Some(text) => assert!(actual.clone().unwrap_err().contains(text), "{actual:?}"),
            }
        };
        let cpu = target(Kind::Cpu, "iree-cpu", "generic");
        check(&cpu, "local-task", None);
        check(&cpu, "local-sync", None);
        check(
            &cpu,
            "cuda:1",
            Some("iree-cpu (generic) and cannot run on device cuda:1"),
        );
        let cuda = target(Kind::Gpu(GpuDriver::Cuda), "iree-cuda", "sm_89");
        check(&cuda, "cuda", None);
        check(
            &cuda,
            "hip:0",
            Some("iree-cuda (sm_89) and cannot run on device hip:0"),
        );
        check(&cuda, "local-task", Some("iree-cuda (sm_89)"));
        let metal = target(Kind::Metal, "iree-metal", "generic");
        check(&metal, "vulkan", Some("iree-metal"));
        assert!(metal.default_device().is_err());
        assert_eq!(cuda.default_device(), Ok("cuda:0".parse().unwrap()));
    }
}
