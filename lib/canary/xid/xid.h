// The errors of NVIDIA GPUs that the driver writes to the kernel's log ("Xid"), in the forms of all
// its generations: the meaning of a line, its severity for the worker on the GPU, and the advice.
// Pure.
#pragma once

#include <array>
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
inline constexpr std::array kXidClasses{XidClass::kFatal, XidClass::kApplication,
                                        XidClass::kIgnored, XidClass::kReported};
/// "fatal", "application", "ignored", "reported".
std::string_view to_string(XidClass xid_class);

/// "0000:3b:00.0" from "00000000:3B:00" and other forms of the address of a PCI device: of four to
/// eight digits of the domain, with or without a function. Empty for any other text.
std::string canonical_bus_id(std::string_view text);

struct Xid {
  /// The GPU, in the form of canonical_bus_id().
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
/// Whether it is an error of a link between GPUs.
bool is_of_link(const Xid& xid);
/// Returns the meaning of the code in a few words; empty if the code is unknown.
std::string_view name_of(std::uint64_t code);
/// Returns the action for an operator, in one sentence.
std::string advice_on(const Xid& xid);

/// Parses "NVRM: Xid (PCI:0000:3b:00): 79, ..."; nullopt for any other message of the kernel.
std::optional<Xid> parse_xid(std::string_view message);

/// Reads the kernel's messages in their order.
class XidReader {
 public:
  /// Returns parse_xid(message). In addition, if the driver finds a GPU missing when it is loaded,
  /// which it reports in three lines without a code, the third line gives an Xid 79.
  std::optional<Xid> read(std::string_view message);

 private:
  /// Bus id of the GPU that the last message introduces; empty if it introduces none.
  std::string introduced_;
};

}  // namespace fo::canary
