// The module torch_pjrt._C: what torch.tpu is made of.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "decompose.h"
#include "program.h"

namespace py = pybind11;

namespace torch_pjrt {
namespace {

py::dict counters() {
  pj_counters c;
  pj_runtime_counters(runtime(), &c);
  py::dict result;
  result["compiles"] = c.compiles;
  result["compile_ms"] = static_cast<double>(c.compile_us) / 1000.0;
#define COUNTER(name) result[#name] = c.name;
  COUNTER(worker_failures)
  COUNTER(cache_loads)
  COUNTER(executions)
  COUNTER(host_reads)
  COUNTER(bytes_to_device)
  COUNTER(bytes_to_host)
  COUNTER(donations)
  COUNTER(fallback_calls)
  COUNTER(decompositions)
  COUNTER(queue_cuts)
#undef COUNTER
  return result;
}

py::list explain() {
  std::vector<pj_explanation> items(pj_runtime_explain(runtime(), nullptr, 0));
  size_t count = std::min(items.size(), pj_runtime_explain(runtime(), items.data(), items.size()));
  py::list result;
  for (size_t i = 0; i < count; ++i) {
    const pj_explanation &e = items[i];
    result.append(py::dict(py::arg("what") = e.what, py::arg("line") = e.line, py::arg("reason") = e.reason,
                           py::arg("compile_ms") = e.compile_ms, py::arg("from_disk") = e.from_disk,
                           py::arg("temp_bytes") = e.temp_bytes));
  }
  return result;
}

// Client options as Python says them: str, bool, int, float or a list of ints.
struct Options {
  explicit Options(const py::dict &values) {
    names.reserve(values.size());
    texts.reserve(values.size());
    lists.reserve(values.size());
    for (auto [key, value] : values) {
      names.push_back(py::cast<std::string>(key));
      pj_option option{};
      option.name = names.back().c_str();
      if (py::isinstance<py::bool_>(value)) {
        option.kind = PJ_OPTION_BOOL;
        option.integer = py::cast<bool>(value);
      } else if (py::isinstance<py::int_>(value)) {
        option.kind = PJ_OPTION_INT;
        option.integer = py::cast<int64_t>(value);
      } else if (py::isinstance<py::float_>(value)) {
        option.kind = PJ_OPTION_FLOAT;
        option.number = py::cast<float>(value);
      } else if (py::isinstance<py::str>(value)) {
        texts.push_back(py::cast<std::string>(value));
        option.kind = PJ_OPTION_STRING;
        option.text = texts.back().c_str();
      } else {
        lists.push_back(py::cast<std::vector<int64_t>>(value));
        option.kind = PJ_OPTION_INTS;
        option.ints = lists.back().data();
        option.count = lists.back().size();
      }
      items.push_back(option);
    }
  }
  std::vector<std::string> names, texts;
  std::vector<std::vector<int64_t>> lists;
  std::vector<pj_option> items;
};

// Called once, by torch_pjrt._plugin.start() under its lock.
void start(const std::string &plugin, const py::dict &client_options, const std::string &cache_directory,
           const std::string &shared_cache_directory, uint64_t cache_limit, const std::string &worker, int workers,
           int compile_timeout_ms, uint64_t worker_memory, int eager, int queue_length) {
  Options client(client_options);
  pj_runtime_options options{};
  options.plugin_path = plugin.c_str();
  options.client_options = client.items.data();
  options.client_option_count = client.items.size();
  options.cache_directory = cache_directory.empty() ? nullptr : cache_directory.c_str();
  options.shared_cache_directory = shared_cache_directory.c_str();
  options.cache_limit_bytes = cache_limit;
  options.worker_path = worker.empty() ? nullptr : worker.c_str();
  options.worker_count = workers;
  options.compile_timeout_ms = compile_timeout_ms;
  options.worker_memory_bytes = worker_memory;
  options.eager = static_cast<pj_eager>(eager);
  options.queue_length = queue_length;
  options.hooks = python_hooks();
  pj_runtime *started = nullptr;
  pj_status status;
  {
    py::gil_scoped_release release;
    status = pj_runtime_create(&options, &started);
  }
  check(status);
  set_runtime(started);
}

py::dict plugin_info() {
  pj_client *client = pj_runtime_client(runtime());
  pj_plugin *plugin = pj_client_plugin(client);
  int major, minor;
  pj_plugin_api_version(plugin, &major, &minor);
  py::list kinds;
  for (int i = 0; i < pj_client_device_count(client); ++i) kinds.append(pj_client_device_kind(client, i));
  return py::dict(py::arg("path") = pj_plugin_path(plugin), py::arg("platform") = pj_client_platform(client),
                  py::arg("platform_version") = pj_client_platform_version(client),
                  py::arg("api_version") = py::make_tuple(major, minor), py::arg("device_kinds") = kinds);
}

// (bytes, shape, dtype) of every value in the device's memory.
py::list live_values(int index) {
  pj_device *device = device_at(static_cast<c10::DeviceIndex>(index));
  std::vector<pj_live_value> values(pj_device_live_values(device, nullptr, 0));
  size_t count = std::min(values.size(), pj_device_live_values(device, values.data(), values.size()));
  py::list result;
  for (size_t i = 0; i < count; ++i) {
    py::tuple shape(values[i].rank);
    for (int d = 0; d < values[i].rank; ++d) shape[d] = values[i].dims[d];
    result.append(py::make_tuple(values[i].bytes, shape, pj_dtype_name(values[i].dtype)));
  }
  return result;
}

py::dict host_memory_stats() {
  at::HostStats stats = pinned_allocator()->get_stats();
  py::dict result;
#define STAT(name)                                        \
  result[#name ".current"] = stats.name.current;           \
  result[#name ".peak"] = stats.name.peak;                 \
  result[#name ".allocated"] = stats.name.allocated;       \
  result[#name ".freed"] = stats.name.freed;
  STAT(active_requests)
  STAT(active_bytes)
  STAT(allocations)
  STAT(allocated_bytes)
#undef STAT
  return result;
}

const char *const kFallbackModes[] = {"silent", "warn", "error"};

std::string set_fallback(const std::string &mode) {
  std::string before = kFallbackModes[static_cast<int>(fallback_mode())];
  for (int i = 0; i < 3; ++i)
    if (mode == kFallbackModes[i]) {
      set_fallback_mode(static_cast<FallbackMode>(i));
      return before;
    }
  TORCH_CHECK_VALUE(false, "the fallback mode is \"warn\", \"error\" or \"silent\", not \"", mode, "\"");
}

// pybind11 knows c10::Error only as a std::exception: gives it the type that torch's own functions give.
void translate(std::exception_ptr pending) {
  auto set = [](PyObject *type, const c10::Error &error) { PyErr_SetString(type, error.what_without_backtrace()); };
  try {
    if (pending) std::rethrow_exception(pending);
  } catch (python_error &error) {
    error.restore();
  } catch (const c10::IndexError &error) {
    set(PyExc_IndexError, error);
  } catch (const c10::ValueError &error) {
    set(PyExc_ValueError, error);
  } catch (const c10::TypeError &error) {
    set(PyExc_TypeError, error);
  } catch (const c10::NotImplementedError &error) {
    set(PyExc_NotImplementedError, error);
  } catch (const c10::OutOfMemoryError &error) {
    set(py::module_::import("torch").attr("OutOfMemoryError").ptr(), error);
  } catch (const c10::Error &error) {
    set(PyExc_RuntimeError, error);
  }
}

}  // namespace
}  // namespace torch_pjrt

using namespace torch_pjrt;  // NOLINT: the module below is all of this file's use of it

PYBIND11_MODULE(_C, m) {
  py::register_exception_translator(translate);
  m.def("register_kernels", register_kernels);
  py::class_<Builder>(m, "Builder")
      .def("input", &Builder::input)
      .def("empty", &Builder::empty)
      .def("can_lower", &Builder::can_lower)
      .def("changed", &Builder::changed)
      .def("node", &Builder::node);
  py::class_<Program>(m, "Program")
      .def(py::init<const std::string &, py::function, size_t>())
      .def("run", &Program::run);
  m.def("start", start, py::arg("plugin"), py::arg("client_options"), py::arg("cache_directory"),
        py::arg("shared_cache_directory"), py::arg("cache_limit"), py::arg("worker"), py::arg("workers"),
        py::arg("compile_timeout_ms"), py::arg("worker_memory"), py::arg("eager"), py::arg("queue_length"));
  m.def("init", [] { runtime(); });
  m.def("is_started", [] { return runtime_if_started() != nullptr; });
  m.def("in_bad_fork", in_bad_fork);
  m.def("device_count", [] { return pj_runtime_device_count(runtime()); });
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int index) { set_current_device(static_cast<c10::DeviceIndex>(index)); });
  m.def("synchronize",
        [](int index) { check(pj_device_synchronize(device_at(static_cast<c10::DeviceIndex>(index)), true)); });
  m.def("cut", [](int index) { check(pj_device_synchronize(device_at(static_cast<c10::DeviceIndex>(index)), false)); });
  m.def("default_generator", [](int index) { return default_generator(static_cast<c10::DeviceIndex>(index)); });
  m.def("plugin_info", plugin_info);
  m.def("own_process_reason", [] {
    const char *reason = pj_runtime_own_process_reason(runtime());
    return std::string(reason ? reason : "");
  });
  m.def("live_values", live_values);
  m.def("host_memory_stats", host_memory_stats);
  m.def("reset_peak_host_memory_stats", [] { pinned_allocator()->reset_peak_stats(); });
  m.def("reset_accumulated_host_memory_stats", [] { pinned_allocator()->reset_accumulated_stats(); });
  m.def("memory_limit", [](int index) {
    pj_device_memory memory;
    pj_device_memory_info(device_at(static_cast<c10::DeviceIndex>(index)), &memory);
    return memory.limit;
  });
  m.def("set_memory_limit", [](int index, uint64_t bytes) {
    pj_device_set_memory_limit(device_at(static_cast<c10::DeviceIndex>(index)), bytes);
  });
  m.def("to_host_dlpack", [](const at::Tensor &tensor) {
    return py::capsule(to_host_dlpack(tensor), "dltensor_versioned", [](PyObject *capsule) {
      // A consumer renames the capsule and owns what is in it.
      if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) return;
      auto *managed = static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
      managed->deleter(managed);
    });
  });
  m.def("counters", counters);
  m.def("reset_counters", [] { pj_runtime_reset_counters(runtime()); });
  m.def("explain", explain);
  m.def("tell", [](uint32_t kinds) { pj_trace_tell(runtime(), kinds); });
  py::list kinds(static_cast<size_t>(PJ_SPAN_KINDS));
#define KIND(name) kinds[PJ_SPAN_##name] = #name;
  KIND(EXECUTE) KIND(COMPILE) KIND(LOAD) KIND(TO_DEVICE) KIND(TO_HOST) KIND(REFUSED) KIND(CUT) KIND(FALLBACK)
#undef KIND
  m.attr("SPAN_KINDS") = kinds;
  m.def("fallbacks", fallback_counts);
  m.def("reset_fallbacks", reset_fallback_counts);
  m.def("set_fallback", set_fallback);
  m.def("has_lowering", [](const std::string &op) { return pj_op_has_lowering(pj_runtime_op(runtime(), op.c_str())); });
  m.def("queue_length", [] { return pj_runtime_queue_length(runtime()); });
  m.def("eager", [] { return static_cast<int>(pj_runtime_eager(runtime())); });
  m.def("set_eager", [](int eager, int queue_length) {
    pj_runtime_set_eager(runtime(), static_cast<pj_eager>(eager), queue_length);
  });
  // Compiles in the background publish under the device's lock, which a thread may hold while it waits for the GIL.
  m.def("wait_for_compiles", [] { pj_runtime_wait_for_compiles(runtime()); }, py::call_guard<py::gil_scoped_release>());
  m.def("stop_compiles", [] {
    if (runtime_if_started() && !in_bad_fork()) pj_runtime_stop_compiles(runtime());
  }, py::call_guard<py::gil_scoped_release>());
  m.def("set_matmul_precision", [](int precision) { pj_runtime_set_matmul_precision(runtime(), precision); });
  m.def("set_index_mode",
        [](int mode) { pj_runtime_set_index_mode(runtime(), static_cast<pj_index_mode>(mode)); });
}
