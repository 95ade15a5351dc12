// What bindgen reads; the functions it keeps are listed in build.rs.
#include "iree/async/util/proactor_pool.h"
#include "iree/hal/api.h"
#ifdef MLXCEL_CUDA
#include "iree/hal/drivers/cuda/api.h"
#endif
#include "iree/hal/drivers/init.h"
#include "iree/hal/drivers/local_sync/sync_device.h"
#include "iree/hal/drivers/local_task/task_device.h"
#include "iree/hal/local/loaders/registration/init.h"
#include "iree/hal/local/executable_plugin_manager.h"
#include "iree/hal/utils/caching_allocator.h"
#include "iree/io/parameter_index.h"
#include "iree/io/parameter_index_provider.h"
#include "iree/modules/io/parameters/module.h"
#include "iree/runtime/api.h"
#include "iree/task/api.h"
#include "iree/vm/bytecode/module.h"
