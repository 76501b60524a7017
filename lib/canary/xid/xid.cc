#include "canary/xid/xid.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/hex.h"
#include "base/text.h"
#include "base/units.h"
#include "text/ascii.h"

namespace fo::canary {
namespace {

constexpr std::uint64_t kNvlink = 74;
constexpr std::uint64_t kFallenOff = 79;
constexpr std::uint64_t kRecoveryAction = 154;

struct Known {
  std::uint64_t code;
  XidClass xid_class;
  const char* name;
  const char* advice;
};

constexpr const char* kRestart =
    "Nothing, if the process ends and restarts; look at its own log if this happens again.";
constexpr const char* kReset =
    "Drain the GPU's workers, end every process that uses it, and reset it (nvidia-smi -r).";
constexpr const char* kWatch = "Nothing now; look for another Xid of this GPU at the same time.";
constexpr const char* kLink =
    "Drain the workers of this host that use several GPUs, and reset the GPUs at both ends of the "
    "link; if it happens again, have the link repaired.";

// Sorted by code. Sources: NVIDIA's catalog of Xids (docs.nvidia.com/deploy/xid-errors), and its
// guide to GPU memory errors.
constexpr std::array kKnown{
    Known{13, XidClass::kApplication, "graphics engine exception", kRestart},
    Known{31, XidClass::kApplication, "memory page fault", kRestart},
    Known{43, XidClass::kIgnored, "a process's channel was reset after its own fault",
          "Nothing: the process has failed, and its error is in its own log."},
    Known{45, XidClass::kReported, "a process's work was removed after an earlier error", kWatch},
    Known{48, XidClass::kFatal, "double-bit ECC error", kReset},
    Known{63, XidClass::kIgnored, "a bad row or page of memory was recorded",
          "Nothing now: the row or page is replaced at the next reset of the GPU."},
    Known{64, XidClass::kFatal, "a bad row or page of memory could not be recorded",
          "Drain the GPU's workers, and reset it; if it happens again, have the GPU replaced."},
    Known{kNvlink, XidClass::kFatal, "NVLink error", kLink},
    Known{kFallenOff, XidClass::kFatal, "the GPU has fallen off the bus",
          "Drain the host, and restart it; if it happens again, have the GPU, its slot and its "
          "power checked."},
    Known{92, XidClass::kReported, "high rate of single-bit ECC errors", kWatch},
    Known{94, XidClass::kApplication, "contained memory error",
          "Nothing, if the process restarts; reset the GPU when it is drained next, which replaces "
          "the row."},
    Known{95, XidClass::kFatal, "uncontained memory error", kReset},
    Known{109, XidClass::kReported, "context switch timeout", kWatch},
    Known{119, XidClass::kFatal, "the GPU's system processor does not answer", kReset},
    Known{120, XidClass::kFatal, "error of the GPU's system processor", kReset},
    Known{140, XidClass::kFatal, "unrecovered ECC error", kReset},
    Known{143, XidClass::kFatal, "the GPU could not be initialized",
          "Reset the GPU; if it happens again, restart the host, and then have the GPU replaced."},
    Known{kRecoveryAction, XidClass::kFatal, "the recovery action of the GPU has changed", ""},
};

constexpr std::uint64_t kFirstLinkCode = 144;
constexpr std::uint64_t kLastLinkCode = 150;

bool is_link_code(std::uint64_t code) { return code >= kFirstLinkCode && code <= kLastLinkCode; }

const Known* find_known(std::uint64_t code) {
  const auto found = std::ranges::find(kKnown, code, &Known::code);
  return found == kKnown.end() ? nullptr : &*found;
}

bool is_word_character(char c) { return text::is_letter_or_digit(c) || c == '_' || c == '-'; }

// Whether `words` contains this word, in any case. "Nonfatal" and "non-fatal" do not contain the
// word "fatal".
bool has_word(std::string_view words, std::string_view word) {
  for (std::size_t at = 0; at + word.size() <= words.size(); ++at) {
    if (!base::equal_ignoring_case(words.substr(at, word.size()), word)) continue;
    const bool begins = at == 0 || !is_word_character(words[at - 1]);
    const std::size_t end = at + word.size();
    if (begins && (end == words.size() || !is_word_character(words[end]))) return true;
  }
  return false;
}

// Returns the recovery action that the text of Xid 154 names, as in "GPU recovery action changed
// from 0x0 (None) to 0x1 (GPU Reset Required)". Empty if the action is "None".
std::string_view recovery_action(std::string_view text) {
  const std::size_t to = text.find(" to 0x");
  if (to == std::string_view::npos) return "unknown";
  const std::size_t open = text.find('(', to);
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return "unknown";
  }
  const std::string_view action = text.substr(open + 1, close - open - 1);
  return base::equal_ignoring_case(action, "none") ? "" : action;
}

// Takes parts from the front of a text, if they are there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : left_(text) {}

  bool skip(std::string_view expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(expected.size());
    return true;
  }
  void skip_blanks() { left_.remove_prefix(std::min(left_.find_first_not_of(' '), left_.size())); }
  // The characters before the first one that `ends` contains.
  std::string_view until(std::string_view ends) {
    const std::string_view taken = left_.substr(0, left_.find_first_of(ends));
    left_.remove_prefix(taken.size());
    return taken;
  }
  [[nodiscard]] std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return base::hex_value(c) >= 0; });
}

// The text without quotes around it; empty for "'<unknown>'" and "<unknown>".
std::string_view without_quotes(std::string_view text) {
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'') {
    text = text.substr(1, text.size() - 2);
  }
  return text.starts_with('<') ? std::string_view() : text;
}

// Reads "pid=1234, name=python3, ", of which each part may be missing.
void read_process(Scanner& from, Xid& xid) {
  if (from.skip("pid=")) {
    xid.pid = base::parse_uint(without_quotes(from.until(",")));
    from.skip(",");
    from.skip_blanks();
  }
  if (from.skip("name=")) {
    xid.process = without_quotes(from.until(","));
    from.skip(",");
    from.skip_blanks();
  }
}

constexpr std::string_view kNoDigits = " ):,";

}  // namespace

std::string_view to_string(XidClass xid_class) {
  constexpr std::array<std::string_view, kXidClasses.size()> kNames{"fatal", "application",
                                                                    "ignored", "reported"};
  return kNames.at(static_cast<std::size_t>(xid_class));
}

std::string canonical_bus_id(std::string_view text) {
  Scanner from(text);
  std::string_view domain = from.until(":");
  if (domain.size() < 4 || domain.size() > 8 || !is_hex(domain, domain.size())) return {};
  while (domain.size() > 4 && domain.front() == '0') domain.remove_prefix(1);
  if (!from.skip(":")) return {};
  const std::string_view bus = from.until(":");
  if (!is_hex(bus, 2) || !from.skip(":")) return {};
  const std::string_view device = from.until(".");
  if (!is_hex(device, 2)) return {};
  std::string_view function = "0";
  if (from.skip(".")) function = from.left();
  if (function.size() != 1 || function[0] < '0' || function[0] > '7') return {};
  std::string id(domain);
  id.append(":").append(bus).append(":").append(device).append(".").append(function);
  return text::lower(id);
}

XidClass class_of(const Xid& xid) {
  if (xid.code == kRecoveryAction) {
    return recovery_action(xid.text).empty() ? XidClass::kReported : XidClass::kFatal;
  }
  if (is_link_code(xid.code)) {
    return has_word(xid.text, "fatal") ? XidClass::kFatal : XidClass::kReported;
  }
  const Known* const known = find_known(xid.code);
  return known == nullptr ? XidClass::kReported : known->xid_class;
}

bool is_of_link(const Xid& xid) { return xid.code == kNvlink || is_link_code(xid.code); }

std::string_view name_of(std::uint64_t code) {
  if (is_link_code(code)) return "NVLink error";
  const Known* const known = find_known(code);
  return known == nullptr ? std::string_view() : known->name;
}

std::string advice_on(const Xid& xid) {
  if (xid.code == kRecoveryAction) {
    const std::string_view action = recovery_action(xid.text);
    if (action.empty()) return "Nothing: the GPU needs no recovery any more.";
    return "Drain the GPU's workers, then do what the driver asks for: " + std::string(action) +
           ".";
  }
  if (is_link_code(xid.code)) {
    return class_of(xid) == XidClass::kFatal ? kLink : kWatch;
  }
  const Known* const known = find_known(xid.code);
  return known == nullptr ? "Look the code up in NVIDIA's list of Xid errors." : known->advice;
}

std::optional<Xid> parse_xid(std::string_view message) {
  Scanner from(message);
  if (!from.skip("NVRM: Xid (")) return std::nullopt;
  from.skip("PCI:");
  Xid xid;
  xid.bus_id = canonical_bus_id(from.until(" )"));
  if (xid.bus_id.empty()) return std::nullopt;
  if (from.skip(" GPU-I:")) xid.gpu_instance = base::parse_uint(from.until(kNoDigits));
  if (from.skip(" GPU-CI:")) xid.compute_instance = base::parse_uint(from.until(kNoDigits));
  if (!from.skip("):")) return std::nullopt;
  from.skip_blanks();
  const std::optional<std::uint64_t> code = base::parse_uint(from.until(kNoDigits));
  if (!code) return std::nullopt;
  xid.code = *code;
  from.skip(",");
  from.skip_blanks();
  read_process(from, xid);
  xid.text = base::one_line(from.left());
  return xid;
}

std::optional<Xid> XidReader::read(std::string_view message) {
  Scanner from(message);
  if (from.skip("NVRM: The NVIDIA GPU ")) {
    introduced_ = canonical_bus_id(from.until(" "));
    return std::nullopt;
  }
  if (!introduced_.empty() && message.find("fallen off the bus") != std::string_view::npos) {
    Xid xid{.bus_id = std::exchange(introduced_, {}), .code = kFallenOff};
    xid.text = "The GPU has fallen off the bus and is not responding to commands.";
    return xid;
  }
  // The second of the three lines begins like this.
  if (!message.starts_with("NVRM: (PCI ID: ")) introduced_.clear();
  return parse_xid(message);
}

}  // namespace fo::canary
