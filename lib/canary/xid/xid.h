// The errors of NVIDIA GPUs that the driver writes to the kernel's log ("Xid"), in the forms of all
// its generations: what a line says, how bad that is for the worker on the GPU, and what to do.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fo::canary {

enum class XidClass {
  kFatal,        // the GPU can't be trusted, or is not usable, until it is reset or replaced
  kApplication,  // a process on the GPU failed; the GPU is sound
  kIgnored,      // nothing to do now
  kReported,     // everything else
};
/// "fatal", "application", "ignored", "reported".
std::string_view to_string(XidClass xid_class);

struct Xid {
  /// The GPU as NVML and the records of workers name it: "0000:3b:00.0".
  std::string bus_id;
  std::uint64_t code = 0;
  /// The slices of a GPU in MIG mode, if the driver names them.
  std::optional<std::uint64_t> gpu_instance = {};
  std::optional<std::uint64_t> compute_instance = {};
  /// The process, if the driver names it.
  std::optional<std::uint64_t> pid = {};
  std::string process = {};
  /// The rest of the driver's message.
  std::string text = {};
};

XidClass class_of(const Xid& xid);
/// Returns the meaning of the code in a few words; empty if the code is unknown.
std::string_view name_of(std::uint64_t code);
/// Returns the action for an operator, in one sentence.
std::string advice_on(const Xid& xid);

/// Parses "NVRM: Xid (PCI:0000:3b:00): 79, ..."; nullopt for any other message of the kernel.
std::optional<Xid> parse_xid(std::string_view message);

/// Reads the kernel's messages in their order.
class XidReader {
 public:
  /// parse_xid(); and for a driver that finds a GPU missing when it is loaded, and says so in three
  /// lines without a code, an Xid 79 at the third.
  std::optional<Xid> read(std::string_view message);

 private:
  /// Bus id of the GPU that the last message introduces; empty if it introduces none.
  std::string introduced_;
};

}  // namespace fo::canary
