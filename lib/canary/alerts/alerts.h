// The alerts of a fleet, as data: each with the commands to run, a case in which it fires, and one
// in which it does not. The series are those of fo-route, fo-shadow, gms-serve and fo-canary. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fo::canary {

/// A series and its values, one for each interval, in promtool's notation: "0x20 1x400".
using Samples = std::vector<std::pair<std::string, std::string>>;

struct Alert {
  std::string group = {};
  std::string name;
  /// "warning" or "critical".
  std::string severity;
  std::string expression;
  /// Time that the state must last; 0 for an event, which is reported at once.
  std::uint64_t for_seconds = 0;
  /// A template of Prometheus that uses only labels ("{{ $labels.model }}") and the value as a
  /// percentage.
  std::string summary;
  /// Commands that an operator runs first; each ends at ";", "," or the end of the text.
  /// fo-runbook(7) has a section with the alert's name.
  std::string runbook;

  /// A case in which the alert fires: the expression becomes true after `begins` seconds, with
  /// `labels`, and with `value` in the form of the summary.
  Samples firing;
  std::uint64_t begins = 0;
  std::vector<std::pair<std::string, std::string>> labels = {};
  std::string value = {};
  /// A case with the same labels in which the process starts with the event; empty for a state.
  Samples first = {};
  /// A case in which the expression never becomes true, although little is missing.
  Samples quiet;
};

/// All alerts; those of one group are adjacent.
const std::vector<Alert>& alerts();

/// Prometheus' file of rules. `for_seconds` replaces the time of each alert for a state.
std::string rules_yaml(std::optional<std::uint64_t> for_seconds = {});
/// promtool's file of unit tests for these rules, which are in the file `rules`: two or three for
/// each alert.
std::string rule_tests_yaml(const std::string& rules,
                            std::optional<std::uint64_t> for_seconds = {});

}  // namespace fo::canary
