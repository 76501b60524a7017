// Reads NVML's counters of the faults of GPUs: errors of memory and of links, pages and rows of
// memory that were replaced, and why clocks are reduced. It needs neither a context nor the CUDA
// driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/strong.h"
#include "cuda/nvml_session.h"

namespace fo::cuda {

/// The errors since the driver was loaded (`current`), and since the GPU was made (`aggregate`).
struct EccErrors {
  std::optional<std::uint64_t> current = {};
  std::optional<std::uint64_t> aggregate = {};
};

/// Counters of a link to another GPU or to a switch.
struct LinkHealth {
  unsigned link = 0;
  bool is_active = false;
  std::optional<std::uint64_t> replays = {};
  std::optional<std::uint64_t> recoveries = {};
  std::optional<std::uint64_t> crc_flit_errors = {};
  std::optional<std::uint64_t> crc_data_errors = {};
};

/// Pages of memory that are not used any more.
struct RetiredPages {
  std::optional<std::uint64_t> single_bit = {};
  std::optional<std::uint64_t> double_bit = {};
  std::optional<bool> is_pending = {};
};

/// Rows of memory that were replaced.
struct RemappedRows {
  std::uint64_t corrected = 0;
  std::uint64_t uncorrected = 0;
  bool is_pending = false;
  bool has_failed = false;
};

/// A member without a value, or an empty list, is not known to this GPU or its driver.
struct GpuHealth {
  unsigned index = 0;
  std::string uuid = {};
  std::string name = {};
  /// "0000:3b:00.0", as in /sys and in the records of workers.
  std::string bus_id = {};
  /// Degrees Celsius.
  std::optional<std::uint64_t> temperature = {};
  EccErrors corrected = {};
  EccErrors uncorrected = {};
  RetiredPages retired_pages = {};
  std::optional<RemappedRows> remapped_rows = {};
  /// Bits of NVML: why the clocks are below the highest ones.
  std::optional<std::uint64_t> throttle_reasons = {};
  std::vector<LinkHealth> links = {};
  /// Why the GPU cannot be queried; empty if it can.
  std::string error = {};
};

/// The GPUs in NVML's order, or the one with this uuid. A GPU that is lost is in the list with its
/// error. Throws Error(kUnavailable) if NVML, the driver, or the GPU is missing.
std::vector<GpuHealth> query_gpu_health(const std::optional<base::GpuUuid>& uuid,
                                        const std::string& library = kNvmlLibrary);

/// "sw_power_cap" and so on. A bit without a name is not listed.
std::vector<std::string> throttle_names(std::uint64_t reasons);

/// Returns the problems that need an operator, in a few words each: errors that memory did not
/// correct since the driver was loaded, rows and pages that wait for a reset or could not be
/// replaced, clocks that the hardware reduces, and a GPU that is lost.
std::vector<std::string> problems_of(const GpuHealth& gpu);

}  // namespace fo::cuda
