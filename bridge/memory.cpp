// The device's and the host's allocator, and what they tell of their memory.
#include "bridge.h"

#include <c10/core/CPUAllocator.h>

#include <map>
#include <mutex>

namespace torch_pjrt {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingAllocator::Stat to_stat(const pj_memory_count &count) {
  c10::CachingAllocator::Stat stat;
  stat.current = static_cast<int64_t>(count.current);
  stat.peak = static_cast<int64_t>(count.peak);
  stat.allocated = static_cast<int64_t>(count.allocated);
  stat.freed = static_cast<int64_t>(count.freed);
  return stat;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    DeviceIndex index = current_device();
    return data_ptr(pj_storage_create(device_at(index), nbytes), index);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *, const void *, size_t) const override {
    TORCH_CHECK(false, "tpu memory cannot be copied by address");
  }
  bool initialized() override { return runtime_if_started() != nullptr; }
  // The plugin owns the memory and nothing is kept aside here: a value's memory goes back when its last holder goes.
  void emptyCache(c10::MempoolId_t) override {}
  // Work of a device has one order, on whatever stream: memory is never used again too early.
  void recordStream(const c10::DataPtr &, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    pj_device_memory memory;
    pj_device_memory_info(device_at(device), &memory);
    for (auto *bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes})
      (*bytes)[kAll] = to_stat(memory.bytes);
    for (auto *count : {&stats.allocation, &stats.segment, &stats.active}) (*count)[kAll] = to_stat(memory.values);
    stats.num_device_alloc = static_cast<int64_t>(memory.values.allocated);
    stats.num_device_free = static_cast<int64_t>(memory.values.freed);
    stats.num_ooms = static_cast<int64_t>(memory.refusals);
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override { pj_device_reset_memory_sums(device_at(device)); }
  void resetPeakStats(DeviceIndex device) override { pj_device_reset_peak_memory(device_at(device)); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    pj_device_memory memory;
    pj_device_memory_info(device_at(device), &memory);
    uint64_t most = memory.limit ? memory.limit : memory.total;
    return {most > memory.bytes.current ? most - memory.bytes.current : 0, memory.total};
  }
};

// Host memory for pin_memory(): ordinary memory, since PJRT has no way to use the caller's pinned pages. Addresses are
// remembered so that is_pinned() is true for them. Nothing is kept aside.
struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t nbytes) override {
    void *data = c10::GetCPUAllocator()->raw_allocate(nbytes);
    std::lock_guard lock(mutex_);
    live_[reinterpret_cast<uintptr_t>(data)] = nbytes;
    for (auto *count : counts()) count->increase(1);
    for (auto *bytes : sums()) bytes->increase(nbytes);
    return {data, data, raw_deleter(), Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free; }
  void copy_data(void *to, const void *from, size_t count) const override { default_copy_data(to, from, count); }
  // A copy to the device has read all of its source when it returns.
  bool record_event(void *data, void *, c10::Stream) override { return owns(data); }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(mutex_);
    for (auto *stat : counts()) stat->reset_accumulated();
    for (auto *stat : sums()) stat->reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard lock(mutex_);
    for (auto *stat : counts()) stat->reset_peak();
    for (auto *stat : sums()) stat->reset_peak();
  }
  bool owns(const void *pointer) {
    auto address = reinterpret_cast<uintptr_t>(pointer);
    std::lock_guard lock(mutex_);
    auto after = live_.upper_bound(address);
    if (after == live_.begin()) return false;
    --after;
    return address < after->first + after->second;
  }

 private:
  static void free(void *data);
  std::array<c10::CachingAllocator::Stat *, 2> counts() { return {&stats_.active_requests, &stats_.allocations}; }
  std::array<c10::CachingAllocator::Stat *, 2> sums() { return {&stats_.active_bytes, &stats_.allocated_bytes}; }
  std::mutex mutex_;
  std::map<uintptr_t, size_t> live_;
  at::HostStats stats_;
};

Allocator *const g_allocator = new Allocator;  // leaked: storages may outlive static objects
PinnedAllocator *const g_pinned = new PinnedAllocator;
REGISTER_ALLOCATOR(DeviceType::PrivateUse1, g_allocator);
[[maybe_unused]] const at::HostAllocatorRegistry<DeviceType::PrivateUse1> g_register_pinned(g_pinned);

void PinnedAllocator::free(void *data) {
  {
    std::lock_guard lock(g_pinned->mutex_);
    auto found = g_pinned->live_.find(reinterpret_cast<uintptr_t>(data));
    for (auto *count : g_pinned->counts()) count->decrease(1);
    for (auto *bytes : g_pinned->sums()) bytes->decrease(found->second);
    g_pinned->live_.erase(found);
  }
  c10::GetCPUAllocator()->raw_deallocate(data);
}

}  // namespace

c10::DeviceAllocator *allocator() { return g_allocator; }
at::HostAllocator *pinned_allocator() { return g_pinned; }
bool is_pinned(const void *pointer) { return g_pinned->owns(pointer); }

}  // namespace torch_pjrt
