// The device's spans in torch.profiler: a child profiler of Kineto, as PyTorch asks of a PrivateUse1 backend
// (torch/csrc/profiler/standalone/privateuse1_profiler.h).
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>
#include <libkineto.h>
#include <output_base.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <torch/csrc/profiler/stubs/base.h>
#include <unistd.h>

#include <algorithm>

#include "bridge.h"

namespace torch_pjrt {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// 1,048,576 spans take about 110 MB.
constexpr size_t kMostSpans = size_t{1} << 20;

std::atomic<bool> g_collecting{false};

// The ops that a thread is in, innermost last, by their numbers in one session.
struct Ops {
  uint64_t session = 0;
  std::vector<uint64_t> ids;
};
thread_local Ops t_ops;

// Rows of a device in the trace.
enum Row : int { kPrograms, kTransfers };

struct Style {
  ActivityType type;
  const char *prefix;  // of the name
};

// In the order of pj_span_kind; what is only told is not collected.
constexpr Style kStyles[] = {{ActivityType::CONCURRENT_KERNEL, ""},
                             {ActivityType::PRIVATEUSE1_RUNTIME, "compile "},
                             {ActivityType::PRIVATEUSE1_RUNTIME, "load "},
                             {ActivityType::GPU_MEMCPY, "Memcpy HtoD "},
                             {ActivityType::GPU_MEMCPY, "Memcpy DtoH "}};

// Kineto writes metadata into the trace as they are.
std::string json_text(std::string text) {
  std::replace(text.begin(), text.end(), '"', '\'');
  return text;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    static std::atomic<uint64_t> sessions{0};
    number_ = ++sessions;
    g_collecting = true;
    if (pj_runtime *runtime = runtime_if_started()) pj_trace_start(runtime, kMostSpans);
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    g_collecting = false;
    if (pj_runtime *runtime = runtime_if_started()) pj_trace_stop(runtime);
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger &logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback op_of, int64_t start,
                    int64_t end) override {
    pj_runtime *runtime = runtime_if_started();
    if (!runtime || in_bad_fork()) return;
    size_t count;
    uint64_t dropped;
    const pj_span *spans = pj_trace_spans(runtime, &count, &dropped);
    if (dropped)
      TORCH_WARN("the trace of the tpu device has only the first ", count, " spans; ", dropped, " were dropped");
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(start, end, "tpu");
    buffer_->gpuOpCount = 0;
    for (size_t i = 0; i < count; ++i) add(spans[i], op_of);
    for (const auto &activity : buffer_->activities) logger.handleActivity(*activity);
    for (int i = 1; i < pj_runtime_device_count(runtime); ++i) logger.handleDeviceInfo(device_info(i), start);
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(device_info(0));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> rows;
    pj_runtime *runtime = runtime_if_started();
    for (int i = 0; runtime && i < pj_runtime_device_count(runtime); ++i) {
      rows.push_back({kPrograms, kPrograms, i, "programs"});
      rows.push_back({kTransfers, kTransfers, i, "transfers"});
    }
    return rows;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override {
    Ops &ops = own_ops();
    ops.ids.push_back(id);
    pj_trace_correlate(id);
  }

  void popCorrelationId() override {
    Ops &ops = own_ops();
    if (!ops.ids.empty()) ops.ids.pop_back();
    pj_trace_correlate(ops.ids.empty() ? 0 : ops.ids.back());
  }

 private:
  // Of this thread; what an earlier session left there, whose end came in the middle of an op, is gone.
  Ops &own_ops() {
    if (t_ops.session != number_) t_ops = {number_, {}};
    return t_ops;
  }

  static libkineto::DeviceInfo device_info(int index) {
    return {index, libkineto::kExceedMaxPid + index, "tpu", "tpu:" + std::to_string(index)};
  }

  GenericTraceActivity &append(const pj_span &span, ActivityType type, std::string name, int64_t begin, int64_t end,
                               const libkineto::getLinkedActivityCallback &op_of) {
    buffer_->emplace_activity(buffer_->span, type, std::move(name));
    GenericTraceActivity &activity = *buffer_->activities.back();
    activity.startTime = begin;
    activity.endTime = end;
    activity.device = getpid();
    activity.resource = activity.threadId = span.thread;
    activity.linked = span.correlation ? op_of(static_cast<int32_t>(span.correlation)) : nullptr;
    if (*span.line) activity.addMetadataQuoted("line", json_text(span.line));
    return activity;
  }

  void add(const pj_span &span, const libkineto::getLinkedActivityCallback &op_of) {
    const Style &style = kStyles[span.kind];
    if (span.kind == PJ_SPAN_EXECUTE) {
      // The host's call, from which an arrow goes to the device's work.
      GenericTraceActivity &call = append(span, ActivityType::PRIVATEUSE1_RUNTIME, "PJRT_LoadedExecutable_Execute",
                                          span.called, span.returned, op_of);
      call.flow.id = ++flows_;
      call.flow.type = libkineto::kLinkAsyncCpuGpu;
      call.flow.start = 1;
      call.addMetadata("correlation", flows_);
    }
    GenericTraceActivity &activity =
        append(span, style.type, style.prefix + std::string(span.text), span.begin, span.end, op_of);
    if (span.device >= 0) {
      activity.device = span.device;
      activity.resource = span.kind == PJ_SPAN_EXECUTE ? kPrograms : kTransfers;
      activity.addMetadata("device", span.device);
      activity.addMetadata("stream", activity.resource);
    }
    switch (span.kind) {
      case PJ_SPAN_EXECUTE:
        activity.flow.id = flows_;
        activity.flow.type = libkineto::kLinkAsyncCpuGpu;
        activity.addMetadata("correlation", flows_);
        activity.addMetadata("ops", span.ops);
        activity.addMetadataQuoted("cut", span.reason);
        break;
      case PJ_SPAN_COMPILE:
      case PJ_SPAN_LOAD:
        activity.addMetadataQuoted("from", span.kind == PJ_SPAN_LOAD ? "disk" : "compiler");
        activity.addMetadataQuoted("reason", span.reason);
        break;
      default:
        activity.addMetadata("bytes", span.bytes);
    }
  }

  uint64_t number_ = 0;
  uint32_t flows_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string &name() const override { return name_; }
  const std::set<ActivityType> &availableActivities() const override { return activities_; }
  // No session where only the host is profiled.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &types,
                                                                 const libkineto::Config &) override {
    return types.count(ActivityType::CONCURRENT_KERNEL) ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType> &types,
                                                                 const libkineto::Config &config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "tpu";
  const std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                           ActivityType::PRIVATEUSE1_RUNTIME};
};

using namespace torch::profiler::impl;  // NOLINT: what a backend registers
[[maybe_unused]] const RegisterPrivateUse1Profiler<Profiler> g_profiler;

// For the profiler without Kineto's spans, torch.autograd.profiler.profile(use_device="tpu"): an event before and after
// each op. As with any event for timing, the work before it is waited for.
struct Stubs final : ProfilerStubs {
  void record(c10::DeviceIndex *device, ProfilerVoidEventStub *event, int64_t *cpu_ns) const override {
    if (device) *device = current_device();
    wait();
    *event = std::make_shared<int64_t>(c10::getTime());
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const ProfilerVoidEventStub *from, const ProfilerVoidEventStub *to) const override {
    int64_t nanoseconds = *static_cast<const int64_t *>(to->get()) - *static_cast<const int64_t *>(from->get());
    return static_cast<float>(nanoseconds) / 1000.f;
  }
  // Marks for a vendor's own tool, as NVTX has: PJRT has no such tool.
  void mark(const char *) const override { no_marks(); }
  void rangePush(const char *) const override { no_marks(); }
  void rangePop() const override { no_marks(); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int i = 0; i < device_count(); ++i) op(i);
  }
  void synchronize() const override { wait(); }

 private:
  static void wait() {
    if (!runtime_if_started()) return;
    pj_device *device = device_at(-1);
    check(pj_device_wait(device, pj_device_record(device)));
  }
  static void no_marks() {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "there is no tool for the tpu device to mark ranges for; use torch.profiler");
  }
};

[[maybe_unused]] const bool g_stubs = (registerPrivateUse1Methods(new Stubs), true);

}  // namespace

void profile(pj_runtime *started) {
  if (g_collecting) pj_trace_start(started, kMostSpans);
}

}  // namespace torch_pjrt
