// A library that stands for AMD's libamdhip64.so where there is no GPU: it has devices, streams, events and memory,
// and it loads code objects for the chip that it says it is, but it starts none.
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
    if (handle)                                                                \
      *handle = &object;                                                       \
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
int hipFuncGetAttribute(int *value, int attribute, const void *function) {
  *value = 0;
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

// Memory, all of it the host's.
int hipMalloc(void **address, size_t size) {
  *address = malloc(size);
  return *address ? SUCCESS : OUT_OF_MEMORY;
}
int hipMallocAsync(void **address, size_t size, void *stream) {
  return hipMalloc(address, size);
}
int hipMallocFromPoolAsync(void **address, size_t size, void *pool, void *stream) {
  return hipMalloc(address, size);
}
int hipMallocManaged(void **address, size_t size, unsigned flags) {
  return hipMalloc(address, size);
}
int hipHostMalloc(void **address, size_t size, unsigned flags) {
  return hipMalloc(address, size);
}
int hipFree(void *address) {
  free(address);
  return SUCCESS;
}
int hipFreeAsync(void *address, void *stream) { return hipFree(address); }
int hipHostFree(void *address) { return hipFree(address); }
int hipHostGetDevicePointer(void **device, void *address, unsigned flags) {
  *device = address;
  return SUCCESS;
}
int hipMemcpy(void *to, const void *from, size_t size, int kind) {
  memcpy(to, from, size);
  return SUCCESS;
}
int hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  return hipMemcpy(to, from, size, kind);
}
int hipMemcpyHtoDAsync(void *to, void *from, size_t size, void *stream) {
  return hipMemcpy(to, from, size, 0);
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

RESULT(hipHostRegister, OUT_OF_MEMORY)

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
RESULT(hipHostUnregister, NOT_SUPPORTED)
RESULT(hipLaunchKernel, NOT_SUPPORTED)
RESULT(hipMemPrefetchAsync, NOT_SUPPORTED)
RESULT(hipMemset, NOT_SUPPORTED)
RESULT(hipMemsetAsync, NOT_SUPPORTED)
RESULT(hipMemsetD16Async, NOT_SUPPORTED)
RESULT(hipMemsetD32Async, NOT_SUPPORTED)
RESULT(hipMemsetD8Async, NOT_SUPPORTED)
RESULT(hipModuleGetGlobal, NOT_SUPPORTED)
RESULT(hipModuleLaunchKernel, NOT_SUPPORTED)
#ifndef OLD
int hipLaunchHostFunc(void *stream, void (*function)(void *), void *argument) {
  function(argument);
  return SUCCESS;
}
#endif
