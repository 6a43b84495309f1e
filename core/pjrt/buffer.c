#include <inttypes.h>
#include <string.h>

#include "pjrt/plugin.h"

// Above this a transfer by the plugin, which may use several threads, costs no more than a memcpy of ours.
enum { READ_IN_PLACE_BELOW = 64 << 10 };

// Bytes of a dense array, or an error that shows the bad part.
static pj_status dense_size(pj_dtype dtype, int rank, const int64_t *dims, size_t *out_size) {
  size_t size = pj_dtype_size(dtype);
  if (!size) return pj_error(PJ_INVALID_ARGUMENT, "element type %d is unknown", (int)dtype);
  if (rank < 0 || rank > PJ_MAX_RANK)
    return pj_error(PJ_INVALID_ARGUMENT, "%d dimensions; from 0 to %d are supported", rank, PJ_MAX_RANK);
  bool empty = false;
  for (int i = 0; i < rank; ++i) {
    if (dims[i] < 0) return pj_error(PJ_INVALID_ARGUMENT, "dimension %d has the size %" PRId64, i, dims[i]);
    if (dims[i] == 0) empty = true;
    else if (__builtin_mul_overflow(size, (size_t)dims[i], &size) || size > PTRDIFF_MAX)
      return pj_error(PJ_INVALID_ARGUMENT, "the array has more bytes than an address can count");
  }
  *out_size = empty ? 0 : size;
  return NULL;
}

pj_status pj_buffer_from_host(pj_client *client, int device, const void *data, pj_dtype dtype, int rank,
                              const int64_t *dims, pj_host_semantics semantics, pj_event **out_done,
                              pj_buffer **out_buffer) {
  *out_buffer = NULL;
  if (out_done) *out_done = NULL;
  size_t size;
  PJ_TRY(pj_client_check_device(client, device));
  PJ_TRY(dense_size(dtype, rank, dims, &size));
  if (!data && size) return pj_error(PJ_INVALID_ARGUMENT, "%zu bytes to copy, and no address", size);
  if (!out_done && semantics != PJ_HOST_COPY)
    return pj_error(PJ_INVALID_ARGUMENT, "only a copying transfer can do without an event");
  static const int SEMANTICS[] = {[PJ_HOST_COPY] = PJRT_HOST_ONLY_DURING_CALL,
                                  [PJ_HOST_UNTIL_DONE] = PJRT_HOST_UNTIL_TRANSFER_COMPLETES,
                                  [PJ_HOST_FROZEN] = PJRT_HOST_ZERO_COPY};
  static const _Alignas(64) char nothing[64];  // an empty array needs an address too
  PJRT_STRUCT(PJRT_Client_BufferFromHostBuffer_Args, args, .client = client->handle, .data = size ? data : nothing,
              .type = dtype, .dims = dims, .num_dims = (size_t)rank, .host_buffer_semantics = SEMANTICS[semantics],
              .device = client->devices[device].handle);
  PJ_TRY(PJRT_CALL(client->plugin, Client_BufferFromHostBuffer, &args));
  if (out_done)
    *out_done = args.done_with_host_buffer;
  else
    pj_event_destroy(client, args.done_with_host_buffer);
  *out_buffer = args.buffer;
  return NULL;
}

pj_status pj_buffer_type(pj_client *client, pj_buffer *buffer, pj_dtype *out_dtype, int *out_rank,
                         int64_t out_dims[PJ_MAX_RANK]) {
  PJRT_STRUCT(PJRT_Buffer_ElementType_Args, type, .buffer = buffer);
  PJ_TRY(PJRT_CALL(client->plugin, Buffer_ElementType, &type));
  if (!pj_dtype_size(type.type))
    return pj_error(PJ_UNIMPLEMENTED, "the buffer's element type is PJRT_Buffer_Type %d", (int)type.type);
  PJRT_STRUCT(PJRT_Buffer_Dimensions_Args, dims, .buffer = buffer);
  PJ_TRY(PJRT_CALL(client->plugin, Buffer_Dimensions, &dims));
  if (dims.num_dims > PJ_MAX_RANK)
    return pj_error(PJ_UNIMPLEMENTED, "the buffer has %zu dimensions; up to %d are supported", dims.num_dims,
                    PJ_MAX_RANK);
  *out_dtype = type.type;
  *out_rank = (int)dims.num_dims;
  if (dims.num_dims) memcpy(out_dims, dims.dims, dims.num_dims * sizeof *out_dims);
  return NULL;
}

pj_status pj_buffer_ready_event(pj_client *client, pj_buffer *buffer, pj_event **out_event) {
  PJRT_STRUCT(PJRT_Buffer_ReadyEvent_Args, args, .buffer = buffer);
  pj_status status = PJRT_CALL(client->plugin, Buffer_ReadyEvent, &args);
  *out_event = args.event;
  return status;
}

pj_status pj_buffer_wait(pj_client *client, pj_buffer *buffer) {
  pj_event *event;
  PJ_TRY(pj_buffer_ready_event(client, buffer, &event));
  pj_status status = pj_event_wait(client, event);
  pj_event_destroy(client, event);
  return status;
}

pj_status pj_buffer_wait_unless(pj_client *client, pj_buffer *buffer, bool (*cancelled)(void)) {
  pj_event *event;
  PJ_TRY(pj_buffer_ready_event(client, buffer, &event));
  pj_status status = pj_event_wait_unless(client, event, cancelled);
  pj_event_destroy(client, event);
  return status;
}

bool pj_buffer_is_ready(pj_client *client, pj_buffer *buffer) {
  pj_event *event;
  pj_status status = pj_buffer_ready_event(client, buffer, &event);
  pj_status_free(status);
  if (status) return true;  // nothing will change any more; waiting gives the error
  bool ready = pj_event_is_ready(client, event);
  pj_event_destroy(client, event);
  return ready;
}

// Each plugin has its own words for a buffer that a program has consumed; ours say what happened.
static pj_status check_readable(pj_client *client, pj_buffer *buffer, size_t size, int *out_rank) {
  PJRT_STRUCT(PJRT_Buffer_IsDeleted_Args, deleted, .buffer = buffer);
  PJ_TRY(PJRT_CALL(client->plugin, Buffer_IsDeleted, &deleted));
  if (deleted.is_deleted)
    return pj_error(PJ_FAILED_PRECONDITION, "the buffer was donated to a program, so its bytes are gone");
  pj_dtype dtype;
  int64_t dims[PJ_MAX_RANK];
  size_t needed;
  PJ_TRY(pj_buffer_type(client, buffer, &dtype, out_rank, dims));
  PJ_TRY(dense_size(dtype, *out_rank, dims, &needed));
  if (needed == size) return NULL;
  return pj_error(PJ_INVALID_ARGUMENT, "the buffer has %zu bytes, the room for it %zu", needed, size);
}

// A layout must be given: without one some plugins hand out the bytes in the device's order.
static pj_status transfer(pj_client *client, pj_buffer *buffer, int rank, void *data, size_t size,
                          pj_event **out_done) {
  int64_t minor_to_major[PJ_MAX_RANK];
  for (int i = 0; i < rank; ++i) minor_to_major[i] = rank - 1 - i;
  PJRT_STRUCT(PJRT_Buffer_MemoryLayout, layout, .type = PJRT_LAYOUT_TILED,
              .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                        .minor_to_major = minor_to_major,
                        .minor_to_major_size = (size_t)rank});
  char nothing;
  PJRT_STRUCT(PJRT_Buffer_ToHostBuffer_Args, args, .src = buffer, .host_layout = &layout, .dst = size ? data : &nothing,
              .dst_size = size);
  pj_status status = PJRT_CALL(client->plugin, Buffer_ToHostBuffer, &args);
  *out_done = args.event;
  return status;
}

pj_status pj_buffer_to_host_async(pj_client *client, pj_buffer *buffer, void *data, size_t size, pj_event **out_done) {
  *out_done = NULL;
  int rank;
  PJ_TRY(check_readable(client, buffer, size, &rank));
  return transfer(client, buffer, rank, data, size, out_done);
}

static bool is_read_in_place(const pj_client *client, size_t size) {
  return client->reads_in_place && size < READ_IN_PLACE_BELOW;
}

static pj_status read_in_place(pj_client *client, pj_buffer *buffer, void *data, size_t size) {
  uintptr_t address;
  PJ_TRY(pj_buffer_pointer(client, buffer, &address));
  memcpy(data, (const void *)address, size);
  return NULL;
}

pj_status pj_buffer_to_host_ready(pj_client *client, pj_buffer *buffer, void *data, size_t size) {
  if (size && is_read_in_place(client, size)) return read_in_place(client, buffer, data, size);
  return pj_buffer_to_host(client, buffer, data, size);
}

pj_status pj_buffer_to_host(pj_client *client, pj_buffer *buffer, void *data, size_t size) {
  int rank;
  PJ_TRY(check_readable(client, buffer, size, &rank));
  if (!size) return pj_buffer_wait(client, buffer);
  if (is_read_in_place(client, size)) {
    PJ_TRY(pj_buffer_wait(client, buffer));
    return read_in_place(client, buffer, data, size);
  }
  pj_event *done;
  PJ_TRY(transfer(client, buffer, rank, data, size, &done));
  pj_status status = pj_event_wait(client, done);
  pj_event_destroy(client, done);
  return status;
}

pj_status pj_buffer_pointer(pj_client *client, pj_buffer *buffer, uintptr_t *out_pointer) {
  if (client->plugin->api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer) {
    PJRT_STRUCT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, args, .buffer = buffer);
    pj_status status = PJRT_CALL(client->plugin, Buffer_OpaqueDeviceMemoryDataPointer, &args);
    *out_pointer = (uintptr_t)args.device_memory_ptr;
    return status;
  }
  PJRT_STRUCT(PJRT_Buffer_UnsafePointer_Args, args, .buffer = buffer);
  pj_status status = PJRT_CALL(client->plugin, Buffer_UnsafePointer, &args);
  *out_pointer = args.buffer_pointer;
  return status;
}

pj_status pj_buffer_copy_to_device(pj_client *client, pj_buffer *buffer, int device, pj_buffer **out_buffer) {
  *out_buffer = NULL;
  PJ_TRY(pj_client_check_device(client, device));
  PJRT_STRUCT(PJRT_Buffer_CopyToDevice_Args, args, .buffer = buffer, .dst_device = client->devices[device].handle);
  PJ_TRY(PJRT_CALL(client->plugin, Buffer_CopyToDevice, &args));
  *out_buffer = args.dst_buffer;
  return NULL;
}

void pj_buffer_destroy(pj_client *client, pj_buffer *buffer) {
  if (!buffer) return;
  PJRT_STRUCT(PJRT_Buffer_Destroy_Args, args, .buffer = buffer);
  PJRT_DESTROY(client->plugin, Buffer_Destroy, &args);
}
