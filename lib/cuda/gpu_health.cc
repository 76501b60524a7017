#include "cuda/gpu_health.h"

#include <array>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace fo::cuda {
namespace {

// The part of NVML's ABI that is used here (nvml.h).
using GetCount = int (*)(unsigned* count);
using GetHandleByIndex = int (*)(unsigned index, NvmlDevice* device);
using GetHandleByUuid = int (*)(const char* uuid, NvmlDevice* device);
using GetText = int (*)(NvmlDevice device, char* text, unsigned size);
using GetNumber = int (*)(NvmlDevice device, unsigned* value);
using GetLongNumber = int (*)(NvmlDevice device, unsigned long long* value);
using GetTemperature = int (*)(NvmlDevice device, int sensor, unsigned* value);
using GetEccErrors = int (*)(NvmlDevice device, int type, int counter, unsigned long long* value);
using GetRetiredPages = int (*)(NvmlDevice device, int cause, unsigned* count,
                                unsigned long long* addresses);
using GetRemappedRows = int (*)(NvmlDevice device, unsigned* corrected, unsigned* uncorrected,
                                unsigned* is_pending, unsigned* has_failed);
using GetLinkState = int (*)(NvmlDevice device, unsigned link, unsigned* is_active);
using GetLinkErrors = int (*)(NvmlDevice device, unsigned link, int counter,
                              unsigned long long* value);
struct PciInfo {
  std::array<char, 16> legacy_bus_id;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  std::array<char, 32> bus_id;
};
using GetPciInfo = int (*)(NvmlDevice device, PciInfo* info);

constexpr int kGpuTemperature = 0;
enum ErrorType { kCorrected, kUncorrected };
enum Counter { kVolatile, kAggregate };
enum RetirementCause { kSingleBit, kDoubleBit };
enum LinkCounter { kReplay, kRecovery, kCrcFlit, kCrcData };
constexpr unsigned kMaxLinks = 64;

constexpr std::array<std::pair<std::uint64_t, const char*>, 9> kThrottleReasons{{
    {0x1, "gpu_idle"},
    {0x2, "applications_clocks_setting"},
    {0x4, "sw_power_cap"},
    {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},
    {0x100, "display_clock_setting"},
}};
constexpr std::uint64_t kByHardware = 0x8 | 0x40 | 0x80;

class Query {
 public:
  Query(const NvmlSession& nvml, NvmlDevice device) : nvml_(nvml), device_(device) {}

  // Calls a function of NVML for the device. False if the driver lacks the function, or the call
  // fails: the device does not support it or is lost, or this user has no permission.
  template <typename Function, typename... Arguments>
  [[nodiscard]] bool call(const char* name, Arguments... arguments) const {
    const auto function = nvml_.find_optional<Function>(name);
    return function != nullptr && function(device_, arguments...) == kNvmlSuccess;
  }

  template <typename Function, typename Value, typename... Arguments>
  [[nodiscard]] std::optional<std::uint64_t> number(const char* name,
                                                    Arguments... arguments) const {
    Value value{};
    if (!call<Function>(name, arguments..., &value)) return std::nullopt;
    return value;
  }

  [[nodiscard]] std::string text(const char* name) const {
    std::array<char, 128> text{};
    return call<GetText>(name, text.data(), unsigned{text.size() - 1}) ? text.data() : "";
  }

  [[nodiscard]] EccErrors ecc(ErrorType type) const {
    const auto get = [&](int counter) {
      return number<GetEccErrors, unsigned long long>("nvmlDeviceGetTotalEccErrors", int{type},
                                                      counter);
    };
    return {.current = get(kVolatile), .aggregate = get(kAggregate)};
  }

  // The number of retired pages. The call has no room for their addresses, so NVML returns the
  // number with kNvmlInsufficientSize.
  [[nodiscard]] std::optional<std::uint64_t> retired(int cause) const {
    const auto function = nvml_.find_optional<GetRetiredPages>("nvmlDeviceGetRetiredPages");
    if (function == nullptr) return std::nullopt;
    unsigned count = 0;
    const int result = function(device_, cause, &count, nullptr);
    if (result != kNvmlSuccess && result != kNvmlInsufficientSize) return std::nullopt;
    return count;
  }

  [[nodiscard]] RetiredPages retired_pages() const {
    RetiredPages pages{.single_bit = retired(kSingleBit), .double_bit = retired(kDoubleBit)};
    const auto pending = number<GetNumber, unsigned>("nvmlDeviceGetRetiredPagesPendingStatus");
    if (pending) pages.is_pending = *pending != 0;
    return pages;
  }

  [[nodiscard]] std::optional<RemappedRows> remapped_rows() const {
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned is_pending = 0;
    unsigned has_failed = 0;
    if (!call<GetRemappedRows>("nvmlDeviceGetRemappedRows", &corrected, &uncorrected, &is_pending,
                               &has_failed)) {
      return std::nullopt;
    }
    return RemappedRows{corrected, uncorrected, is_pending != 0, has_failed != 0};
  }

  [[nodiscard]] std::vector<LinkHealth> links() const {
    std::vector<LinkHealth> links;
    for (unsigned link = 0; link < kMaxLinks; ++link) {
      const auto state = number<GetLinkState, unsigned>("nvmlDeviceGetNvLinkState", link);
      if (!state) break;
      const auto get = [&](int counter) {
        return number<GetLinkErrors, unsigned long long>("nvmlDeviceGetNvLinkErrorCounter", link,
                                                         counter);
      };
      LinkHealth health{.link = link, .is_active = *state != 0};
      if (health.is_active) {
        health.replays = get(kReplay);
        health.recoveries = get(kRecovery);
        health.crc_flit_errors = get(kCrcFlit);
        health.crc_data_errors = get(kCrcData);
      }
      links.push_back(health);
    }
    return links;
  }

 private:
  const NvmlSession& nvml_;
  NvmlDevice device_;
};

GpuHealth health_of(const NvmlSession& nvml, NvmlDevice device) {
  const Query query(nvml, device);
  GpuHealth gpu;
  gpu.index =
      static_cast<unsigned>(query.number<GetNumber, unsigned>("nvmlDeviceGetIndex").value_or(0));
  gpu.uuid = query.text("nvmlDeviceGetUUID");
  gpu.name = query.text("nvmlDeviceGetName");
  PciInfo pci{};
  if (query.call<GetPciInfo>("nvmlDeviceGetPciInfo_v3", &pci)) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.0", pci.domain, pci.bus, pci.device);
    gpu.bus_id = text.data();
  }
  unsigned temperature = 0;
  // Every GPU has a temperature, so a failure means that the GPU does not answer.
  const int result =
      nvml.find<GetTemperature>("nvmlDeviceGetTemperature")(device, kGpuTemperature, &temperature);
  if (result == kNvmlSuccess) {
    gpu.temperature = temperature;
  } else if (result != kNvmlNotSupported) {
    gpu.error = nvml.text_of(result);
    return gpu;
  }
  gpu.corrected = query.ecc(kCorrected);
  gpu.uncorrected = query.ecc(kUncorrected);
  gpu.retired_pages = query.retired_pages();
  gpu.remapped_rows = query.remapped_rows();
  gpu.throttle_reasons =
      query.number<GetLongNumber, unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
  gpu.links = query.links();
  return gpu;
}

}  // namespace

std::vector<GpuHealth> query_gpu_health(const std::optional<base::GpuUuid>& uuid,
                                        const std::string& library) {
  const std::string what = "query NVML for the health of ";
  NvmlDevice device = nullptr;
  if (uuid) {
    const NvmlSession nvml(library, what + base::quoted(uuid->value()));
    const auto get_handle = nvml.find<GetHandleByUuid>("nvmlDeviceGetHandleByUUID");
    nvml.check(get_handle(uuid->value().c_str(), &device));
    return {health_of(nvml, device)};
  }
  const NvmlSession nvml(library, what + "all GPUs");
  unsigned count = 0;
  nvml.check(nvml.find<GetCount>("nvmlDeviceGetCount_v2")(&count));
  if (count == 0) throw base::Error(base::ExitStatus::kUnavailable, what + "all GPUs: no GPU");
  const auto get_handle = nvml.find<GetHandleByIndex>("nvmlDeviceGetHandleByIndex_v2");
  std::vector<GpuHealth> gpus;
  for (unsigned index = 0; index < count; ++index) {
    const int result = get_handle(index, &device);
    gpus.push_back(result == kNvmlSuccess ? health_of(nvml, device)
                                          : GpuHealth{.error = nvml.text_of(result)});
    gpus.back().index = index;
  }
  return gpus;
}

std::vector<std::string> throttle_names(std::uint64_t reasons) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kThrottleReasons) {
    if ((reasons & bit) != 0) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> problems_of(const GpuHealth& gpu) {
  if (!gpu.error.empty()) return {gpu.error};
  std::vector<std::string> problems;
  if (const auto count = gpu.uncorrected.current.value_or(0); count > 0) {
    problems.push_back(std::to_string(count) + " uncorrected memory errors");
  }
  if (gpu.remapped_rows && gpu.remapped_rows->has_failed) {
    problems.emplace_back("a row remapping failed");
  }
  if (gpu.remapped_rows && gpu.remapped_rows->is_pending) {
    problems.emplace_back("a row remapping is pending: reset the GPU");
  }
  if (gpu.retired_pages.is_pending.value_or(false)) {
    problems.emplace_back("a page retirement is pending: reset the GPU");
  }
  for (const std::string& name : throttle_names(gpu.throttle_reasons.value_or(0) & kByHardware)) {
    problems.push_back("clocks are reduced: " + name);
  }
  return problems;
}

}  // namespace fo::cuda
