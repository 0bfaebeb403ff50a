"""The only doors to drivers: NVML, the amdgpu driver's files, and processes on a device."""
