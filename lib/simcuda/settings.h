// The settings of the simulated devices from the environment. Parsing only; read once, in cuInit.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fo::simcuda {

/// An invalid or unusable variable, with the message.
class SettingsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One item of GMS_SIM_FAULTS, "function:k=what": k is 3 (the third call of this process), 3+ (from
/// the third on) or * (every call).
struct Fault {
  enum class Action { kFail, kHang, kKill };
  std::string function;  // without _v2
  std::uint64_t first = 1;
  bool and_later = false;
  Action action = Action::kFail;
  std::uint32_t result = 0;  // of kFail
};

/// One item of GMS_SIM_LATENCY, "function=200us".
struct Latency {
  std::string function;  // without _v2
  std::chrono::nanoseconds duration{};
};

/// GMS_SIM_QUIRKS: behaviour that a real driver may have and this one does not by default:
struct Quirks {
  /// map-needs-context: cuMemMap, cuMemUnmap and cuMemSetAccess need a current context.
  bool map_needs_context = false;
  /// import-needs-context: so does cuMemImportFromShareableHandle. need-context sets both.
  bool import_needs_context = false;
  /// no-reexport: an imported handle cannot be exported.
  bool no_reexport = false;
  /// late-copy-errors: a failing copy into device memory returns success. The next synchronising
  /// call returns the error, and so do all later calls in that context.
  bool late_copy_errors = false;
  /// no-uuid: cuDeviceGetUuid is not supported; cuDeviceGetUuid_v2 is.
  bool no_uuid = false;
  /// mig: all devices are MIG slices of one GPU, whose UUID cuDeviceGetUuid returns.
  bool mig = false;
};

struct Settings {
  /// GMS_SIM_DIR; by default a folder of this user on /dev/shm.
  std::filesystem::path dir;
  bool dir_is_default = false;
  int devices = 2;                              // GMS_SIM_DEVICES, 1 to 64
  std::uint64_t vram = std::uint64_t{8} << 30;  // GMS_SIM_VRAM, of each device
  std::uint64_t granularity = 2u << 20;         // GMS_SIM_GRANULARITY, a power of two, >= 4096
  std::uint64_t context_size = 16u << 20;       // GMS_SIM_CONTEXT_SIZE, may be 0
  std::vector<Fault> faults;
  std::vector<Latency> latencies;
  Quirks quirks;
  std::chrono::nanoseconds free_delay{};       // GMS_SIM_FREE_DELAY; see store.h
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES

  /// Throws SettingsError.
  static Settings from_env();
};

/// Settings of faults treat "cuMemGetInfo_v2" and "cuMemGetInfo" as one function.
std::string_view unversioned(std::string_view function);

/// A number with us, ms, s (durations), or without or with KiB, MiB, GiB, TiB (sizes).
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
std::optional<std::uint64_t> parse_size(std::string_view text);

/// Throw SettingsError.
std::vector<Fault> parse_faults(std::string_view text);
std::vector<Latency> parse_latencies(std::string_view text);
Quirks parse_quirks(std::string_view text);

/// The devices that CUDA_VISIBLE_DEVICES selects from those with these UUIDs ("GPU-…"), in its
/// order. Items are ordinals or unique prefixes of UUIDs; as with the real driver, the first item
/// that matches no device, or one already listed, ends the list.
std::vector<int> visible_devices(std::string_view list, const std::vector<std::string>& uuids);

}  // namespace fo::simcuda
