// The record that a worker publishes about itself. Other processes change it, too, for example if
// an operator drains the worker. A change keeps members that are unknown here. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/record/endpoint_id.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

/// The state that a worker reports about itself. The health that other processes observe is in
/// separate records.
enum class Life {
  kStarting,
  kReady,
  kDraining,  // finishes its requests, and gets no new ones
  kSpare,     // could serve, but another process with the same URL does
  kGone,      // has deregistered
};
std::string_view to_string(Life life);
std::optional<Life> parse_life(std::string_view text);

struct Instance {
  std::string id;
  std::string url;
  std::string model;
  /// The checksum of its card; may be empty.
  std::string card = {};
  std::string kv_abi = {};
  Life life = Life::kStarting;
  /// True if an operator has drained it; see drained(). encode() leaves this out.
  bool is_drained = false;
  /// The number of requests that it serves at a time, and the number of tokens that fit into its
  /// whole KV cache.
  std::optional<std::uint64_t> slots = {};
  std::optional<std::uint64_t> kv_tokens = {};
  /// Generation of the failover lock; nullopt without a lock.
  std::optional<std::uint64_t> generation = {};
  std::string host = {};
  std::optional<std::uint64_t> pid = {};
  /// PCI addresses.
  std::vector<std::string> gpus = {};
  /// Time in the form of text::format_time.
  std::string started_at = {};
  std::map<std::string, std::string> labels = {};
};

/// A new id: 128 random bits in hex.
std::string make_instance_id();
/// An id for a worker that has no id of its own. It is derived from `name`, such as the worker's
/// URL: equal names give equal ids.
std::string derived_instance_id(std::string_view name);
bool is_instance_id(std::string_view text);

/// "instances/NAMESPACE/COMPONENT/ENDPOINT/ID".
std::string instance_key(const EndpointId& endpoint, const std::string& id);
/// nullopt if `key` is not one of an instance.
std::optional<EndpointId> endpoint_of(std::string_view key);

/// One line of JSON.
std::string encode(const Instance& instance);
/// Throws kBadData for a text that is not a record of an instance: "record 'key': reason".
Instance decode_instance(const Record& record);
/// The life in a record's text; nullopt unless the text is a JSON object with a valid "life".
std::optional<Life> life_of(std::string_view text);

// --- Changes of a record's text, for Registry::edit. They throw kBadData for a text that is not a
// JSON object.

/// Sets the life of the worker. While the record is drained by an operator, only kGone takes effect
/// at once, and any other life when the record is undrained. A record that is gone is unchanged.
std::string with_life(const std::string& text, Life life);
/// drained() marks a record as draining for an operator, and undrained() undoes that. Both leave a
/// record that is gone unchanged.
std::string drained(const std::string& text);
std::string undrained(const std::string& text);
/// Sets the generation of the failover lock.
std::string with_generation(const std::string& text, std::uint64_t generation);
/// Sets one label, or removes it if `value` is empty.
std::string with_label(const std::string& text, const std::string& name, const std::string& value);

}  // namespace fo::fleet
