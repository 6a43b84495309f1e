// Buffers: from the host, to the host, on the device.
#include "objects.h"

FUNCTION(Client_BufferFromHostBuffer) {
  ENTER(Client_BufferFromHostBuffer);
  size_t size = pj_dtype_size(args->type);
  for (size_t i = 0; i < args->num_dims; ++i) size *= (size_t)args->dims[i];
  storage *s = storage_new(size);
  if (!s) return out_of_memory(size);
  if (size) memcpy(s->bytes, args->data, size);
  complete(s->ready, 0, NULL);
  args->buffer = buffer_new(s, args->type, args->num_dims, args->dims, args->device);
  args->done_with_host_buffer = event_new(s->ready);
  return NULL;
}

FUNCTION(Buffer_Destroy) {
  ENTER(Buffer_Destroy);
  pthread_mutex_lock(&state.lock);
  storage_release_locked(args->buffer->storage);
  --state.counts.buffers;
  pthread_mutex_unlock(&state.lock);
  free(args->buffer);
  return NULL;
}

FUNCTION(Buffer_ElementType) {
  ENTER(Buffer_ElementType);
  args->type = args->buffer->dtype;
  return NULL;
}

FUNCTION(Buffer_Dimensions) {
  ENTER(Buffer_Dimensions);
  args->dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

storage *borrow(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&state.lock);
  storage *s = buffer->storage;
  if (s) ++s->refs;
  pthread_mutex_unlock(&state.lock);
  return s;
}

static PJRT_Error *deleted(void) {
  return error_new(PJ_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
}

FUNCTION(Buffer_IsDeleted) {
  ENTER(Buffer_IsDeleted);
  storage *s = borrow(args->buffer);
  args->is_deleted = !s;
  storage_release(s);
  return NULL;
}

FUNCTION(Buffer_ReadyEvent) {
  ENTER(Buffer_ReadyEvent);
  storage *s = borrow(args->buffer);
  if (!s) return deleted();
  args->event = event_new(s->ready);
  storage_release(s);
  return NULL;
}

static PJRT_Error *address(PJRT_Buffer *buffer, void **out_address) {
  storage *s = borrow(buffer);
  if (!s) return deleted();
  *out_address = s->bytes;
  storage_release(s);
  return NULL;
}

FUNCTION(Buffer_OpaqueDeviceMemoryDataPointer) {
  ENTER(Buffer_OpaqueDeviceMemoryDataPointer);
  return address(args->buffer, &args->device_memory_ptr);
}

FUNCTION(Buffer_UnsafePointer) {
  ENTER(Buffer_UnsafePointer);
  void *pointer = NULL;
  PJRT_Error *error = address(args->buffer, &pointer);
  args->buffer_pointer = (uintptr_t)pointer;
  return error;
}

FUNCTION(Buffer_ToHostBuffer) {
  ENTER(Buffer_ToHostBuffer);
  storage *s = borrow(args->src);
  if (!s) return deleted();
  if (!args->host_layout || args->host_layout->tiled.minor_to_major_size != args->src->rank ||
      args->dst_size < s->size) {
    storage_release(s);
    return error_new(PJ_INVALID_ARGUMENT, "a host layout of the buffer's rank and room for its bytes are needed");
  }
  job *j = calloc(1, sizeof *j);
  j->inputs = malloc(sizeof *j->inputs);
  j->inputs[0] = s;
  j->input_count = 1;
  j->host = args->dst;
  j->copied = completion_new();
  args->event = event_new(j->copied);
  pthread_mutex_lock(&state.lock);
  ++state.counts.to_host;
  pthread_mutex_unlock(&state.lock);
  job_start(j);
  return NULL;
}

FUNCTION(Buffer_CopyToDevice) {
  ENTER(Buffer_CopyToDevice);
  storage *s = borrow(args->buffer);
  if (!s) return deleted();
  // Values never change, so a copy is one more reference.
  args->dst_buffer = buffer_new(s, args->buffer->dtype, args->buffer->rank, args->buffer->dims, args->dst_device);
  return NULL;
}
