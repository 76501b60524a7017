// The exported functions: each checks its pointers and calls Driver. See exports.h.
//
// A call goes through call(), or, if it needs no cuInit, returns at once. call() first counts it
// for fault injection without a lock, so that a hanging call does not block others; then one lock
// guards all state. Copies are checked under the lock, and done after it.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "simcuda/driver.h"
#include "simcuda/exports.h"
#include "simcuda/injector.h"

// In the namespace, but extern "C": the definitions match the declarations of exports.h.
namespace fo::simcuda {

extern "C" __attribute__((visibility("default"))) const char fo_simcuda_version[] = FO_VERSION;

namespace {

constexpr int kDriverVersion = 13000;

struct Export {
  std::string_view name;
  void* function;
};

const Export* find_export(std::string_view name) {
#define FO_SIMCUDA_EXPORT(symbol, parameters) {#symbol, reinterpret_cast<void*>(&symbol)},
  static const Export kExports[] = {FO_SIMCUDA_FUNCTIONS(FO_SIMCUDA_EXPORT)};
#undef FO_SIMCUDA_EXPORT
  for (const Export& item : kExports) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

/// The newest version of the function that cuda.h's `name` refers to.
const Export* find_newest(const std::string& name) {
  const Export* newest = find_export(name + "_v2");
  return newest ? newest : find_export(name);
}

/// Created by the first cuInit and never destroyed: other threads may use it when the process
/// exits.
struct State {
  explicit State(const Settings& settings) : injector(settings.faults, settings.latencies) {}
  const pid_t pid = ::getpid();
  Injector injector;
  std::mutex mutex;              // guards driver
  std::optional<Driver> driver;  // set when cuInit has succeeded
  std::atomic<bool> ready = false;
};
std::atomic<State*> state_of_process = nullptr;

/// In a forked child every function fails, cuInit too, as with the real driver.
void require_same_process(const State& state) {
  require(state.pid == ::getpid(), Result::kNotInitialized);
}

template <typename Body>
Result answer(const Body& body) noexcept {
  try {
    body();
    return Result::kSuccess;
  } catch (const Failure& failure) {
    return failure.result;
  } catch (const std::bad_alloc&) {
    return Result::kOutOfMemory;
  } catch (...) {
    return Result::kUnknown;
  }
}

State& ready_state() {
  State* const state = state_of_process.load();
  require(state && state->ready.load(), Result::kNotInitialized);
  require_same_process(*state);
  return *state;
}

/// Whether the function works in a broken context, too.
bool is_about_devices_or_contexts(std::string_view function) {
  return function.starts_with("cuDevice") || function.starts_with("cuCtx") ||
         function == "fo_simcuda_memory_info";
}

template <typename Body>
Result call(std::string_view function, const Body& body) noexcept {
  return answer([&] {
    State& state = ready_state();
    state.injector.enter(function);
    const std::lock_guard lock(state.mutex);
    if (!is_about_devices_or_contexts(function)) state.driver->require_unbroken();
    body(*state.driver);
  });
}

/// A copy into device memory, whose errors may be delayed. `check` throws, or returns whether to
/// write; `write` writes.
template <typename Check, typename Write>
Result copy_in(std::string_view function, const Check& check, const Write& write) noexcept {
  bool is_to_write = false;
  const Result result = answer([&] {
    State& state = ready_state();
    std::optional<Failure> fault;
    try {
      state.injector.enter(function);
    } catch (const Failure& failure) {
      fault = failure;
    }
    const std::lock_guard lock(state.mutex);
    if (fault) return state.driver->fail_copy(fault->result);
    is_to_write = check(*state.driver);
  });
  if (is_to_write) write();
  return result;
}

void init() {
  static std::mutex mutex;
  State* state = state_of_process.load();
  if (state) require_same_process(*state);  // before the lock, which a fork may have left locked
  std::unique_lock lock(mutex);
  state = state_of_process.load();
  const Settings settings = Settings::from_env();
  if (!state) {
    auto made = std::make_unique<State>(settings);
    const std::string unknown = made->injector.find_unknown(
        [](const std::string& name) { return find_newest(name) != nullptr; });
    if (!unknown.empty())
      throw SettingsError("unknown function '" + unknown + "' to delay or to fail");
    state = made.release();
    state_of_process = state;
  }
  lock.unlock();
  state->injector.enter("cuInit");
  lock.lock();
  if (state->ready.load()) return;
  state->driver.emplace(settings);
  state->ready = true;
}

template <typename T>
void put(T* out, const T& value) {
  require(out != nullptr);
  *out = value;
}

void* host_pointer(DevicePtr address) { return reinterpret_cast<void*>(address); }

}  // namespace

Result cuInit(unsigned int flags) {
  return answer([&] {
    require(flags == 0);
    try {
      init();
    } catch (const SettingsError& error) {
      // Printed, because with a misspelled fault a test would pass without testing anything.
      std::fprintf(stderr, "libcuda (simulated): error: %s\n", error.what());
      throw Failure{Result::kInvalidValue};
    }
  });
}

Result cuDriverGetVersion(int* version) {
  return answer([&] { put(version, kDriverVersion); });
}

Result cuGetErrorName(Result error, const char** name) {
  return answer([&] {
    const ResultText* text = find_result_text(error);
    put(name, text ? text->name : nullptr);
    require(text != nullptr);
  });
}

Result cuGetErrorString(Result error, const char** text) {
  return answer([&] {
    const ResultText* found = find_result_text(error);
    put(text, found ? found->text : nullptr);
    require(found != nullptr);
  });
}

Result cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

Result cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t,
                           QueryResult* status) {
  return answer([&] {
    require(symbol != nullptr && function != nullptr);
    // Only this function has different parameters by version: 12.0 added the status.
    const bool old = std::string_view(symbol) == "cuGetProcAddress" && version < 12000;
    const Export* found = old ? find_export(symbol) : find_newest(symbol);
    *function = found ? found->function : nullptr;
    if (status) *status = found ? QueryResult::kSuccess : QueryResult::kSymbolNotFound;
    require(found != nullptr, Result::kNotFound);
  });
}

Result cuDeviceGet(Device* device, int ordinal) {
  return call(__func__, [&](Driver& driver) { put(device, driver.device(ordinal)); });
}

Result cuDeviceGetCount(int* count) {
  return call(__func__, [&](Driver& driver) { put(count, driver.device_count()); });
}

Result cuDeviceGetUuid(Uuid* uuid, Device device) {
  return call(__func__, [&](Driver& driver) { put(uuid, driver.old_uuid(device)); });
}

Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  return call(__func__, [&](Driver& driver) { put(uuid, driver.uuid(device)); });
}

Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, Device device) {
  return call(__func__, [&](Driver& driver) { put(value, driver.attribute(attribute, device)); });
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, Device device) {
  return call(__func__, [&](Driver& driver) { put(bytes, driver.total_memory(device)); });
}

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  return call(__func__, [&](Driver& driver) {
    require(context != nullptr);
    *context = driver.retain_primary_context(device);
  });
}

Result cuDevicePrimaryCtxRelease_v2(Device device) {
  return call(__func__, [&](Driver& driver) { driver.release_primary_context(device); });
}

Result cuCtxSetCurrent(Context context) {
  return call(__func__, [&](Driver& driver) {
    auto& stack = thread_contexts();
    if (context) driver.device_of(context);
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
  });
}

Result cuCtxGetCurrent(Context* context) {
  return call(__func__, [&](Driver&) {
    const auto& stack = thread_contexts();
    put(context, stack.empty() ? nullptr : stack.back());
  });
}

Result cuCtxPushCurrent_v2(Context context) {
  return call(__func__, [&](Driver& driver) {
    driver.device_of(context);
    thread_contexts().push_back(context);
  });
}

Result cuCtxPopCurrent_v2(Context* context) {
  return call(__func__, [&](Driver&) {
    auto& stack = thread_contexts();
    require(!stack.empty(), Result::kInvalidContext);
    if (context) *context = stack.back();
    stack.pop_back();
  });
}

Result cuCtxSynchronize() {
  return call(__func__, [&](Driver& driver) { driver.synchronize(); });
}

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return call(__func__, [&](Driver& driver) {
    const auto info = driver.memory_info(driver.current_device());
    if (free) *free = info.free;
    if (total) *total = info.total;
  });
}

Result cuMemcpyHtoD_v2(DevicePtr to, const void* from, std::size_t size) {
  return copy_in(
      __func__,
      [&](Driver& driver) {
        require(from != nullptr || size == 0);
        return driver.check_writable(to, size) && size > 0;
      },
      [&] { std::memcpy(host_pointer(to), from, size); });
}

Result cuMemcpyDtoH_v2(void* to, DevicePtr from, std::size_t size) {
  const Result result = call(__func__, [&](Driver& driver) {
    require(to != nullptr || size == 0);
    driver.synchronize();  // earlier writes must be visible
    driver.check_readable(from, size);
  });
  if (result == Result::kSuccess && size > 0) std::memcpy(to, host_pointer(from), size);
  return result;
}

// The copy is complete when the function returns. A program that waits for its stream cannot see
// the difference.
Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, std::size_t size, Stream stream) {
  return copy_in(
      __func__,
      [&](Driver& driver) {
        require(from != nullptr || size == 0);
        driver.require_stream(stream);
        return driver.check_writable(to, size) && size > 0;
      },
      [&] { std::memcpy(host_pointer(to), from, size); });
}

Result cuMemsetD8_v2(DevicePtr to, unsigned char value, std::size_t size) {
  return copy_in(
      __func__, [&](Driver& driver) { return driver.check_writable(to, size) && size > 0; },
      [&] { std::memset(host_pointer(to), value, size); });
}

Result cuMemHostAlloc(void** address, std::size_t size, unsigned int) {
  return call(__func__, [&](Driver& driver) {
    require(address != nullptr);
    *address = driver.allocate_host(size);
  });
}

Result cuMemFreeHost(void* address) {
  return call(__func__, [&](Driver& driver) { driver.free_host(address); });
}

Result cuStreamCreate(Stream* stream, unsigned int) {
  return call(__func__, [&](Driver& driver) {
    require(stream != nullptr);
    *stream = driver.create_stream();
  });
}

Result cuStreamDestroy_v2(Stream stream) {
  return call(__func__, [&](Driver& driver) { driver.destroy_stream(stream); });
}

Result cuStreamSynchronize(Stream stream) {
  return call(__func__, [&](Driver& driver) { driver.synchronize(stream); });
}

Result cuMemGetAllocationGranularity(std::size_t* granularity, const AllocationProp* prop,
                                     GranularityOption option) {
  return call(__func__, [&](Driver& driver) {
    require(prop != nullptr);
    require(option == GranularityOption::kMinimum || option == GranularityOption::kRecommended);
    driver.check_prop(*prop);
    put(granularity, driver.granularity());
  });
}

Result cuMemCreate(AllocationHandle* handle, std::size_t size, const AllocationProp* prop,
                   unsigned long long flags) {
  return call(__func__, [&](Driver& driver) {
    require(handle != nullptr && prop != nullptr && flags == 0);
    *handle = driver.create(size, *prop);
  });
}

Result cuMemRelease(AllocationHandle handle) {
  return call(__func__, [&](Driver& driver) { driver.release(handle); });
}

Result cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, HandleType type,
                                    unsigned long long flags) {
  return call(__func__, [&](Driver& driver) {
    require(shareable != nullptr && flags == 0);
    *static_cast<int*>(shareable) = driver.export_fd(handle, type);
  });
}

Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, HandleType type) {
  return call(__func__, [&](Driver& driver) {
    require(handle != nullptr);
    require(type == HandleType::kPosixFileDescriptor, Result::kNotSupported);
    *handle = driver.import_fd(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  });
}

Result cuMemAddressReserve(DevicePtr* address, std::size_t size, std::size_t alignment,
                           DevicePtr hint, unsigned long long flags) {
  return call(__func__, [&](Driver& driver) {
    require(address != nullptr && flags == 0);
    *address = driver.reserve(size, alignment, hint);
  });
}

Result cuMemAddressFree(DevicePtr address, std::size_t size) {
  return call(__func__, [&](Driver& driver) { driver.free_range(address, size); });
}

Result cuMemMap(DevicePtr address, std::size_t size, std::size_t offset, AllocationHandle handle,
                unsigned long long flags) {
  return call(__func__, [&](Driver& driver) {
    require(flags == 0);
    driver.map(address, size, offset, handle);
  });
}

Result cuMemUnmap(DevicePtr address, std::size_t size) {
  return call(__func__, [&](Driver& driver) { driver.unmap(address, size); });
}

Result cuMemSetAccess(DevicePtr address, std::size_t size, const AccessDesc* desc,
                      std::size_t count) {
  return call(__func__, [&](Driver& driver) {
    require(desc != nullptr && count > 0);
    driver.set_access(address, size, desc, count);
  });
}

Result cuMemGetAccess(unsigned long long* flags, const Location* location, DevicePtr address) {
  return call(__func__, [&](Driver& driver) {
    require(flags != nullptr && location != nullptr);
    *flags = static_cast<unsigned long long>(driver.access(*location, address));
  });
}

Result cuMemRetainAllocationHandle(AllocationHandle* handle, void* address) {
  return call(__func__, [&](Driver& driver) {
    require(handle != nullptr);
    *handle = driver.retain(reinterpret_cast<DevicePtr>(address));
  });
}

Result cuMemGetAllocationPropertiesFromHandle(AllocationProp* prop, AllocationHandle handle) {
  return call(__func__, [&](Driver& driver) { put(prop, driver.properties(handle)); });
}

Result fo_simcuda_memory_info(Device device, std::size_t* free, std::size_t* total) {
  return call(__func__, [&](Driver& driver) {
    require(free != nullptr && total != nullptr);
    const auto info = driver.memory_info(device);
    *free = info.free;
    *total = info.total;
  });
}

}  // namespace fo::simcuda
