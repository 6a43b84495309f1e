// The part of the PJRT C API that we call, declared by ourselves after xla/pjrt/c/pjrt_c_api.h of openxla/xla, API
// 0.114. The names are the API's own, so that its documentation can be searched. abi_test (tests/pjrt/abi) compares
// every size and offset below with the official header.
//
// Rules of the ABI: each struct begins with its size, fields are only appended, and a callee older than the caller
// reads only the fields it knows. struct_size is the end of the last field, which is less than sizeof where the tail is
// padded.
#ifndef PJ_PJRT_ABI_H_
#define PJ_PJRT_ABI_H_

#include "pj/pjrt.h"
#include "pjrt/slots.h"

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;

// Closes the declaration of struct `name` whose last field is `last`.
#define PJRT_STRUCT_END(name, last) \
  typedef struct name name;         \
  enum { name##_STRUCT_SIZE = offsetof(struct name, last) + sizeof(((struct name *)0)->last) }

#define PJRT_STRUCT_BEGIN \
  size_t struct_size;     \
  struct PJRT_Extension_Base *extension_start

// A struct whose size is filled in and whose other fields are zero but for those given.
#define PJRT_STRUCT(name, variable, ...) name variable = {.struct_size = name##_STRUCT_SIZE, ##__VA_ARGS__}

// ---- errors and plugin ----------------------------------------------------------------------------------------------

struct PJRT_Extension_Base {
  size_t struct_size;
  int type;
  struct PJRT_Extension_Base *next;
};
PJRT_STRUCT_END(PJRT_Extension_Base, next);

struct PJRT_Api_Version {
  PJRT_STRUCT_BEGIN;
  int major_version;
  int minor_version;
};
PJRT_STRUCT_END(PJRT_Api_Version, minor_version);

struct PJRT_Error_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Error *error;
};
PJRT_STRUCT_END(PJRT_Error_Destroy_Args, error);

struct PJRT_Error_Message_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_Error *error;
  const char *message;
  size_t message_size;
};
PJRT_STRUCT_END(PJRT_Error_Message_Args, message_size);

struct PJRT_Error_GetCode_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_Error *error;
  int code;
};
PJRT_STRUCT_END(PJRT_Error_GetCode_Args, code);

enum { PJRT_STRING, PJRT_INT64, PJRT_INT64_LIST, PJRT_FLOAT, PJRT_BOOL };

struct PJRT_NamedValue {
  PJRT_STRUCT_BEGIN;
  const char *name;
  size_t name_size;
  int type;
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size;  // length of a string or list, else 1
};
PJRT_STRUCT_END(PJRT_NamedValue, value_size);

struct PJRT_Plugin_Initialize_Args {
  PJRT_STRUCT_BEGIN;
};
PJRT_STRUCT_END(PJRT_Plugin_Initialize_Args, extension_start);

struct PJRT_Plugin_Attributes_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_NamedValue *attributes;
  size_t num_attributes;
};
PJRT_STRUCT_END(PJRT_Plugin_Attributes_Args, num_attributes);

// ---- events ---------------------------------------------------------------------------------------------------------

struct PJRT_Event_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Event *event;
};
PJRT_STRUCT_END(PJRT_Event_Destroy_Args, event);

struct PJRT_Event_IsReady_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Event *event;
  bool is_ready;
};
PJRT_STRUCT_END(PJRT_Event_IsReady_Args, is_ready);

struct PJRT_Event_Await_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Event *event;
};
PJRT_STRUCT_END(PJRT_Event_Await_Args, event);

struct PJRT_Event_OnReady_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Event *event;
  void (*callback)(PJRT_Error *error, void *user_arg);
  void *user_arg;
};
PJRT_STRUCT_END(PJRT_Event_OnReady_Args, user_arg);

// ---- client and devices ---------------------------------------------------------------------------------------------

struct PJRT_Client_Create_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_NamedValue *create_options;
  size_t num_options;
  void (*kv_get_callback)(void);
  void *kv_get_user_arg;
  void (*kv_put_callback)(void);
  void *kv_put_user_arg;
  PJRT_Client *client;
  void (*kv_try_get_callback)(void);
  void *kv_try_get_user_arg;
};
PJRT_STRUCT_END(PJRT_Client_Create_Args, kv_try_get_user_arg);

struct PJRT_Client_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
};
PJRT_STRUCT_END(PJRT_Client_Destroy_Args, client);

struct PJRT_Client_PlatformName_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  const char *platform_name;
  size_t platform_name_size;
};
PJRT_STRUCT_END(PJRT_Client_PlatformName_Args, platform_name_size);

struct PJRT_Client_PlatformVersion_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  const char *platform_version;
  size_t platform_version_size;
};
PJRT_STRUCT_END(PJRT_Client_PlatformVersion_Args, platform_version_size);

struct PJRT_Client_AddressableDevices_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  PJRT_Device *const *addressable_devices;
  size_t num_addressable_devices;
};
PJRT_STRUCT_END(PJRT_Client_AddressableDevices_Args, num_addressable_devices);

struct PJRT_Device_GetDescription_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Device *device;
  PJRT_DeviceDescription *device_description;
};
PJRT_STRUCT_END(PJRT_Device_GetDescription_Args, device_description);

struct PJRT_DeviceDescription_Id_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_DeviceDescription *device_description;
  int id;
};
PJRT_STRUCT_END(PJRT_DeviceDescription_Id_Args, id);

struct PJRT_DeviceDescription_Kind_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_DeviceDescription *device_description;
  const char *device_kind;
  size_t device_kind_size;
};
PJRT_STRUCT_END(PJRT_DeviceDescription_Kind_Args, device_kind_size);

struct PJRT_Device_MemoryStats_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Device *device;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes;
  bool peak_allocated_bytes_is_set;
};
PJRT_STRUCT_END(PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set);

// ---- buffers --------------------------------------------------------------------------------------------------------

struct PJRT_Buffer_MemoryLayout_Tiled {
  PJRT_STRUCT_BEGIN;
  const int64_t *minor_to_major;
  size_t minor_to_major_size;
  const int64_t *tile_dims;
  const size_t *tile_dim_sizes;
  size_t num_tiles;
};
PJRT_STRUCT_END(PJRT_Buffer_MemoryLayout_Tiled, num_tiles);

struct PJRT_Buffer_MemoryLayout_Strides {
  PJRT_STRUCT_BEGIN;
  const int64_t *byte_strides;
  size_t num_byte_strides;
};
PJRT_STRUCT_END(PJRT_Buffer_MemoryLayout_Strides, num_byte_strides);

enum { PJRT_LAYOUT_TILED, PJRT_LAYOUT_STRIDES };

struct PJRT_Buffer_MemoryLayout {
  PJRT_STRUCT_BEGIN;
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  int type;
};
PJRT_STRUCT_END(PJRT_Buffer_MemoryLayout, type);

enum {
  PJRT_HOST_ONLY_DURING_CALL,
  PJRT_HOST_UNTIL_TRANSFER_COMPLETES,
  PJRT_HOST_ZERO_COPY,
  PJRT_HOST_MUTABLE_ZERO_COPY,
};

struct PJRT_Client_BufferFromHostBuffer_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  const void *data;
  pj_dtype type;
  const int64_t *dims;
  size_t num_dims;
  const int64_t *byte_strides;
  size_t num_byte_strides;
  int host_buffer_semantics;
  PJRT_Device *device;
  PJRT_Memory *memory;
  PJRT_Buffer_MemoryLayout *device_layout;
  PJRT_Event *done_with_host_buffer;
  PJRT_Buffer *buffer;
};
PJRT_STRUCT_END(PJRT_Client_BufferFromHostBuffer_Args, buffer);

struct PJRT_Buffer_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
};
PJRT_STRUCT_END(PJRT_Buffer_Destroy_Args, buffer);

struct PJRT_Buffer_ElementType_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  pj_dtype type;
};
PJRT_STRUCT_END(PJRT_Buffer_ElementType_Args, type);

struct PJRT_Buffer_Dimensions_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  const int64_t *dims;
  size_t num_dims;
};
PJRT_STRUCT_END(PJRT_Buffer_Dimensions_Args, num_dims);

struct PJRT_Buffer_IsDeleted_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  bool is_deleted;
};
PJRT_STRUCT_END(PJRT_Buffer_IsDeleted_Args, is_deleted);

struct PJRT_Buffer_CopyToDevice_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  PJRT_Device *dst_device;
  PJRT_Buffer *dst_buffer;
};
PJRT_STRUCT_END(PJRT_Buffer_CopyToDevice_Args, dst_buffer);

struct PJRT_Buffer_ToHostBuffer_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *src;
  PJRT_Buffer_MemoryLayout *host_layout;
  void *dst;
  size_t dst_size;
  PJRT_Event *event;
};
PJRT_STRUCT_END(PJRT_Buffer_ToHostBuffer_Args, event);

struct PJRT_Buffer_ReadyEvent_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  PJRT_Event *event;
};
PJRT_STRUCT_END(PJRT_Buffer_ReadyEvent_Args, event);

struct PJRT_Buffer_UnsafePointer_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  uintptr_t buffer_pointer;
};
PJRT_STRUCT_END(PJRT_Buffer_UnsafePointer_Args, buffer_pointer);

struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Buffer *buffer;
  void *device_memory_ptr;
};
PJRT_STRUCT_END(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, device_memory_ptr);

// ---- programs -------------------------------------------------------------------------------------------------------

struct PJRT_Program {
  PJRT_STRUCT_BEGIN;
  char *code;
  size_t code_size;
  const char *format;
  size_t format_size;
};
PJRT_STRUCT_END(PJRT_Program, format_size);

struct PJRT_Client_Compile_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  const PJRT_Program *program;
  const char *compile_options;
  size_t compile_options_size;
  PJRT_LoadedExecutable *executable;
};
PJRT_STRUCT_END(PJRT_Client_Compile_Args, executable);

struct PJRT_LoadedExecutable_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_LoadedExecutable *executable;
};
PJRT_STRUCT_END(PJRT_LoadedExecutable_Destroy_Args, executable);

struct PJRT_LoadedExecutable_GetExecutable_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_LoadedExecutable *loaded_executable;
  PJRT_Executable *executable;
};
PJRT_STRUCT_END(PJRT_LoadedExecutable_GetExecutable_Args, executable);

struct PJRT_LoadedExecutable_AddressableDevices_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_LoadedExecutable *executable;
  PJRT_Device *const *addressable_devices;
  size_t num_addressable_devices;
};
PJRT_STRUCT_END(PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices);

struct PJRT_ExecuteOptions {
  PJRT_STRUCT_BEGIN;
  void *send_callbacks;
  void *recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  void *context;
  const char *call_location;
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
  void *multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void *hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
};
PJRT_STRUCT_END(PJRT_ExecuteOptions, num_hlo_output_callbacks);

struct PJRT_LoadedExecutable_Execute_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_LoadedExecutable *executable;
  PJRT_ExecuteOptions *options;
  PJRT_Buffer *const *const *argument_lists;  // [num_devices][num_args]
  size_t num_devices;
  size_t num_args;
  PJRT_Buffer **const *output_lists;          // [num_devices][number of outputs]
  PJRT_Event **device_complete_events;
  PJRT_Device *execute_device;
};
PJRT_STRUCT_END(PJRT_LoadedExecutable_Execute_Args, execute_device);

struct PJRT_Executable_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
};
PJRT_STRUCT_END(PJRT_Executable_Destroy_Args, executable);

struct PJRT_Executable_NumOutputs_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
  size_t num_outputs;
};
PJRT_STRUCT_END(PJRT_Executable_NumOutputs_Args, num_outputs);

struct PJRT_Executable_OutputElementTypes_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
  pj_dtype *output_types;
  size_t num_output_types;
};
PJRT_STRUCT_END(PJRT_Executable_OutputElementTypes_Args, num_output_types);

struct PJRT_Executable_OutputDimensions_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
  size_t num_outputs;
  const int64_t *dims;      // all outputs' dimensions, one after the other
  const size_t *dim_sizes;  // [num_outputs] ranks
};
PJRT_STRUCT_END(PJRT_Executable_OutputDimensions_Args, dim_sizes);

struct PJRT_Executable_Serialize_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_Executable *executable;
  const char *serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_SerializedExecutable *serialized_executable;
  void (*serialized_executable_deleter)(PJRT_SerializedExecutable *serialized);
};
PJRT_STRUCT_END(PJRT_Executable_Serialize_Args, serialized_executable_deleter);

struct PJRT_Executable_DeserializeAndLoad_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Client *client;
  const char *serialized_executable;
  size_t serialized_executable_size;
  PJRT_LoadedExecutable *loaded_executable;
  const char *overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
  void *load_options;
};
PJRT_STRUCT_END(PJRT_Executable_DeserializeAndLoad_Args, load_options);

struct PJRT_Executable_GetCostAnalysis_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
  size_t num_properties;
  const PJRT_NamedValue *properties;
};
PJRT_STRUCT_END(PJRT_Executable_GetCostAnalysis_Args, properties);

struct PJRT_Executable_GetCompiledMemoryStats_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_Executable *executable;
  int64_t generated_code_size_in_bytes;
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes;
  int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes;
  int64_t host_alias_size_in_bytes;
  int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;
  int64_t total_size_in_bytes;
  int64_t total_allocation_bytes;
  int64_t indefinite_allocations;
  int64_t peak_unpadded_heap_bytes;
};
PJRT_STRUCT_END(PJRT_Executable_GetCompiledMemoryStats_Args, peak_unpadded_heap_bytes);

// ---- ahead of time --------------------------------------------------------------------------------------------------

struct PJRT_TopologyDescription_Create_Args {
  PJRT_STRUCT_BEGIN;
  const char *topology_name;
  size_t topology_name_size;
  const PJRT_NamedValue *create_options;
  size_t num_options;
  PJRT_TopologyDescription *topology;
};
PJRT_STRUCT_END(PJRT_TopologyDescription_Create_Args, topology);

struct PJRT_TopologyDescription_Destroy_Args {
  PJRT_STRUCT_BEGIN;
  PJRT_TopologyDescription *topology;
};
PJRT_STRUCT_END(PJRT_TopologyDescription_Destroy_Args, topology);

struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_TopologyDescription *topology;
  PJRT_DeviceDescription *const *descriptions;
  size_t num_descriptions;
};
PJRT_STRUCT_END(PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions);

struct PJRT_Compile_Args {
  PJRT_STRUCT_BEGIN;
  const PJRT_TopologyDescription *topology;
  const PJRT_Program *program;
  const char *compile_options;
  size_t compile_options_size;
  PJRT_Client *client;
  PJRT_Executable *executable;
};
PJRT_STRUCT_END(PJRT_Compile_Args, executable);

// ---- the table ------------------------------------------------------------------------------------------------------

#define PJRT_SLOT_VOID(name) void (*PJRT_##name)(PJRT_##name##_Args *);
#define PJRT_SLOT_CALLED(name) PJRT_Error *(*PJRT_##name)(PJRT_##name##_Args *);
#define PJRT_SLOT_UNUSED(name) void (*PJRT_##name)(void);

typedef struct PJRT_Api {
  size_t struct_size;
  struct PJRT_Extension_Base *extension_start;
  PJRT_Api_Version pjrt_api_version;
  PJRT_API_SLOTS(PJRT_SLOT_VOID, PJRT_SLOT_CALLED, PJRT_SLOT_CALLED, PJRT_SLOT_UNUSED)
} PJRT_Api;

#undef PJRT_SLOT_VOID
#undef PJRT_SLOT_CALLED
#undef PJRT_SLOT_UNUSED

#endif
