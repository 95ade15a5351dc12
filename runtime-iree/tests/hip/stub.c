// A library that stands for AMD's libamdhip64.so where there is no GPU: it has devices, streams and events, and it
// loads code objects for the chip that it says it is, but has no memory to give and starts nothing.
//
// STUB_HIP_DEVICES is how many devices there are, 1 by default; STUB_HIP_MACH is their chip, as the number that code
// objects of that chip have in the ELF header. With OLD defined the library lacks a function that IREE needs.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
  SUCCESS = 0,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_IMAGE = 200,
  NO_BINARY_FOR_GPU = 209,
  NOT_SUPPORTED = 801,
};

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 0) : otherwise;
}

static int object;

// What gives a handle: to a context, a stream, an event and so on. Nobody looks into one.
#define HANDLE(name)                                                           \
  int name(void **handle) {                                                    \
    *handle = &object;                                                         \
    return SUCCESS;                                                            \
  }
#define RESULT(name, result)                                                   \
  int name(void) { return result; }

int hipInit(unsigned flags) { return SUCCESS; }
int hipGetDeviceCount(int *count) {
  *count = (int)number("STUB_HIP_DEVICES", 1);
  return *count ? SUCCESS : NO_DEVICE;
}
int hipDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return SUCCESS;
}
int hipDeviceGetName(char *name, int length, int device) {
  strncpy(name, "Stub GPU", length);
  return SUCCESS;
}
int hipDeviceGetUuid(char *uuid, int device) {
  memset(uuid, 7, 16);
  return SUCCESS;
}
int hipDeviceGetAttribute(int *value, int attribute, int device) {
  *value = 1 << 16;
  return SUCCESS;
}
int hipDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return SUCCESS;
}
const char *hipGetErrorName(int error) {
  switch (error) {
  case OUT_OF_MEMORY:
    return "hipErrorOutOfMemory";
  case NO_DEVICE:
    return "hipErrorNoDevice";
  case INVALID_IMAGE:
    return "hipErrorInvalidImage";
  case NO_BINARY_FOR_GPU:
    return "hipErrorNoBinaryForGpu";
  case NOT_SUPPORTED:
    return "hipErrorNotSupported";
  }
  return "hipErrorUnknown";
}
const char *hipGetErrorString(int error) { return hipGetErrorName(error); }

int hipModuleLoadDataEx(void **module, const unsigned char *image,
                        unsigned options, void *names, void *values) {
  if (memcmp(image, "\x7f" "ELF", 4) != 0)
    return INVALID_IMAGE;
  // The lowest byte of e_flags.
  if (image[48] != number("STUB_HIP_MACH", 0))
    return NO_BINARY_FOR_GPU;
  *module = &object;
  return SUCCESS;
}
int hipModuleLoadData(void **module, const unsigned char *image) {
  return hipModuleLoadDataEx(module, image, 0, NULL, NULL);
}

HANDLE(hipCtxGetCurrent)
HANDLE(hipCtxPopCurrent)
HANDLE(hipDevicePrimaryCtxRetain)
HANDLE(hipEventCreate)
HANDLE(hipEventCreateWithFlags)
HANDLE(hipMemPoolCreate)
HANDLE(hipModuleGetFunction)
HANDLE(hipStreamCreateWithFlags)

RESULT(hipCtxPushCurrent, SUCCESS)
RESULT(hipCtxSetCurrent, SUCCESS)
RESULT(hipDevicePrimaryCtxRelease, SUCCESS)
RESULT(hipEventDestroy, SUCCESS)
RESULT(hipEventQuery, SUCCESS)
RESULT(hipEventRecord, SUCCESS)
RESULT(hipEventSynchronize, SUCCESS)
RESULT(hipFuncGetAttribute, SUCCESS)
RESULT(hipFuncSetAttribute, SUCCESS)
RESULT(hipGetLastError, SUCCESS)
RESULT(hipMemPoolDestroy, SUCCESS)
RESULT(hipMemPoolGetAttribute, SUCCESS)
RESULT(hipMemPoolSetAttribute, SUCCESS)
RESULT(hipMemPoolTrimTo, SUCCESS)
RESULT(hipModuleUnload, SUCCESS)
RESULT(hipSetDevice, SUCCESS)
RESULT(hipStreamDestroy, SUCCESS)
RESULT(hipStreamSynchronize, SUCCESS)
RESULT(hipStreamWaitEvent, SUCCESS)
RESULT(hipFree, SUCCESS)
RESULT(hipFreeAsync, SUCCESS)
RESULT(hipHostFree, SUCCESS)

RESULT(hipHostMalloc, OUT_OF_MEMORY)
RESULT(hipHostRegister, OUT_OF_MEMORY)
RESULT(hipMalloc, OUT_OF_MEMORY)
RESULT(hipMallocAsync, OUT_OF_MEMORY)
RESULT(hipMallocFromPoolAsync, OUT_OF_MEMORY)
RESULT(hipMallocManaged, OUT_OF_MEMORY)

RESULT(hipDeviceEnablePeerAccess, NOT_SUPPORTED)
RESULT(hipEventElapsedTime, NOT_SUPPORTED)
RESULT(hipGraphAddEmptyNode, NOT_SUPPORTED)
RESULT(hipGraphAddEventRecordNode, NOT_SUPPORTED)
RESULT(hipGraphAddKernelNode, NOT_SUPPORTED)
RESULT(hipGraphAddMemsetNode, NOT_SUPPORTED)
RESULT(hipGraphCreate, NOT_SUPPORTED)
RESULT(hipGraphDestroy, NOT_SUPPORTED)
RESULT(hipGraphExecDestroy, NOT_SUPPORTED)
RESULT(hipGraphInstantiate, NOT_SUPPORTED)
RESULT(hipGraphLaunch, NOT_SUPPORTED)
RESULT(hipHostGetDevicePointer, NOT_SUPPORTED)
RESULT(hipHostUnregister, NOT_SUPPORTED)
RESULT(hipLaunchKernel, NOT_SUPPORTED)
RESULT(hipMemPrefetchAsync, NOT_SUPPORTED)
RESULT(hipMemcpy, NOT_SUPPORTED)
RESULT(hipMemcpyAsync, NOT_SUPPORTED)
RESULT(hipMemcpyHtoDAsync, NOT_SUPPORTED)
RESULT(hipMemset, NOT_SUPPORTED)
RESULT(hipMemsetAsync, NOT_SUPPORTED)
RESULT(hipMemsetD16Async, NOT_SUPPORTED)
RESULT(hipMemsetD32Async, NOT_SUPPORTED)
RESULT(hipMemsetD8Async, NOT_SUPPORTED)
RESULT(hipModuleGetGlobal, NOT_SUPPORTED)
RESULT(hipModuleLaunchKernel, NOT_SUPPORTED)
#ifndef OLD
RESULT(hipLaunchHostFunc, NOT_SUPPORTED)
#endif
