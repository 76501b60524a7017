// The behaviour of an oracle besides answering: delays, faults and lies. All are options of the
// program, members of POST /oracle, and can be set for one request. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.h"

namespace fo::oracle {

/// A fault in an answer.
struct Fault {
  enum class Kind {
    kNone,
    kStall,     // nothing more is sent, and the connection stays open
    kReset,     // the connection is reset
    kCut,       // the connection ends between two events
    kHalf,      // the connection ends within an event
    kEarlyEnd,  // the answer ends properly, without a finish reason
    kError,     // an error in place of the rest
    kAbort,     // the finish reason "abort"
    kExit,      // the process exits
    kKill,      // the process kills itself
    kWrong,     // the tokens from here on are wrong
  };
  Kind kind = Kind::kNone;
  /// The fault is before the answer's head.
  bool at_start = false;
  /// Number of tokens that are sent before it: at least `first` and at most `last`, drawn for each
  /// request.
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
/// "none", "KIND@start", "KIND@N" or "KIND@N-M". Throws base::Error(kUsage).
Fault parse_fault(std::string_view text);
std::string to_text(const Fault& fault);

/// The table of all_knobs() says what each does.
struct Knobs {
  base::Duration first_token{};
  base::Duration gap{};
  base::Duration jitter{};
  std::uint64_t chunk = 1;
  bool random_chunks = false;
  std::uint64_t write_bytes = 0;
  bool half_characters = false;
  std::uint64_t padding = 0;
  Fault fail = {};
  std::uint64_t fail_every = 1;
  std::uint64_t fail_next = 0;
  std::uint64_t refuse_status = 503;
  std::uint64_t refuse_every = 0;
  std::uint64_t refuse_next = 0;
  base::Duration retry_after{};
  std::uint64_t slots = 0;
  std::uint64_t waiting = 1024;
  std::uint64_t busy_status = 503;
  std::string token_ids = "yes";
  std::string health = "yes";
  bool wrong_sampler = false;
  double logprob_noise = 0;
  bool reasoning = false;
  bool tool_calls = false;
};

/// One member of Knobs, under its name in JSON ("first_token"); an option or a header has "-" in
/// place of "_".
struct Knob {
  using Member = std::variant<base::Duration Knobs::*, std::uint64_t Knobs::*, double Knobs::*,
                              bool Knobs::*, std::string Knobs::*, Fault Knobs::*>;
  std::string_view name;
  Member member;
  std::string_view help;
  /// Lower limit of a number.
  std::uint64_t min = 0;
  std::uint64_t max = 0;
  /// Permitted words of a text.
  std::vector<std::string> words = {};
};
std::span<const Knob> all_knobs();

/// Sets the knobs that `object` names. Values are as in knobs_to_json; also numbers and true as
/// text, as headers have them. Throws base::Error(kUsage), before any is set.
void set_knobs(Knobs& knobs, const nlohmann::json& object);
nlohmann::json knobs_to_json(const Knobs& knobs);

}  // namespace fo::oracle
