// Options that several tools share, and option types that CLI11 lacks. Include it only in
// options.cc files and tests, because CLI11 is slow to compile.
#pragma once

#include <sys/types.h>

#include <CLI/CLI.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/strong.h"
#include "base/units.h"
#include "cli/endpoint_options.h"

namespace fo::cli {

/// Adds a subcommand; `chosen` becomes `value` if it is given.
template <typename Value>
CLI::App* add_command(CLI::App& app, Value& chosen, std::type_identity_t<Value> value,
                      const std::string& name, const std::string& description) {
  CLI::App* sub = app.add_subcommand(name, description);
  sub->callback([&chosen, value] { chosen = value; });
  return sub;
}

/// Parses the duration given to an option. Throws CLI::ValidationError with an example of a valid
/// one.
base::Duration read_duration(const std::string& name, const std::string& text);

/// A duration such as 500ms or 30s; the current value is shown as the default.
CLI::Option* add_duration(CLI::App& app, const std::string& name, base::Duration& value,
                          const std::string& description);
CLI::Option* add_duration(CLI::App& app, const std::string& name,
                          std::optional<base::Duration>& value, const std::string& description);

/// A duration above 0 and at most `max`; the current value is shown as the default.
CLI::Option* add_positive_duration(CLI::App& app, const std::string& name, base::Duration& value,
                                   const std::string& description,
                                   base::Duration max = base::Duration::max());

/// A whole number from `min` to `max`, with which `set` is called.
CLI::Option* add_number(CLI::App& app, const std::string& name,
                        const std::function<void(std::uint64_t number)>& set,
                        const std::string& description, std::uint64_t min, std::uint64_t max);
/// The same for a value, which is shown as the default.
template <std::integral Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Number& value,
                        const std::string& description, std::uint64_t min = 0,
                        std::uint64_t max = std::numeric_limits<Number>::max()) {
  const auto set = [&value](std::uint64_t number) { value = static_cast<Number>(number); };
  return add_number(app, name, set, description, min, max)->default_str(std::to_string(value));
}
template <std::integral Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, std::optional<Number>& value,
                        const std::string& description, std::uint64_t min = 0,
                        std::uint64_t max = std::numeric_limits<Number>::max()) {
  const auto set = [&value](std::uint64_t number) { value = static_cast<Number>(number); };
  return add_number(app, name, set, description, min, max);
}

/// A size in the form that parse_size reads back.
std::string size_text(base::ByteCount size);

/// A size such as 4GiB; the current value is shown as the default.
CLI::Option* add_size(CLI::App& app, const std::string& name, base::ByteCount& value,
                      const std::string& description);
CLI::Option* add_size(CLI::App& app, const std::string& name, std::optional<base::ByteCount>& value,
                      const std::string& description);

/// The timeout of a reader's lock. Its default is $GMS_REMAP_TIMEOUT_MS, a number of milliseconds,
/// else the current value. --help names the variable's unit.
CLI::Option* add_remap_timeout(CLI::App& app, const std::string& name, base::Duration& value,
                               const std::string& description);

/// One of `words`; the word of the current value is shown as the default.
template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Value& value,
                        const std::vector<std::pair<std::string, Value>>& words,
                        const std::string& description, const std::string& type) {
  const auto read = [&value, words](const std::string& text) {
    for (const auto& [word, meaning] : words) {
      if (word == text) value = meaning;
    }
  };
  CLI::Option* option = app.add_option_function<std::string>(name, read, description);
  for (const auto& [word, meaning] : words) {
    if (meaning == value) option->default_str(word);
  }
  return option->check(CLI::IsMember(words))->type_name(type);
}

/// A validator that accepts any text, and lists words for completion. An option that takes no other
/// words uses add_choice() or CLI::IsMember.
CLI::Validator example_words(const std::vector<std::string>& words);

/// The meaning of `--device` together with `--socket`: it is refused, or it names the device on
/// which the socket's memory is mapped.
enum class DeviceOfSocket { kRefused, kWhereToMap };

/// `--socket`, or `--socket-dir`, `--device` and `--tag`; and `--server-uid`.
void add_endpoint(CLI::App& app, EndpointOptions& endpoint,
                  DeviceOfSocket device_of_socket = DeviceOfSocket::kRefused);

/// An option with a text; `type` stands for it in --help.
CLI::Option* add_text(CLI::App& app, const std::string& name, std::string& value,
                      const std::string& description, const std::string& type);
/// A repeatable option; each use adds one text.
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& description, const std::string& type);

/// `--socket-dir DIR`, default $GMS_SOCKET_DIR; empty stands for gms::socket_dir_or_default.
CLI::Option* add_socket_dir(CLI::App& app, std::string& socket_dir);

/// `--server-uid UID`, default $GMS_SERVER_UID: the user whose servers are accepted besides those
/// of root and our own user.
CLI::Option* add_server_uid(CLI::App& app, std::optional<uid_t>& server_uid);

/// `--id ID`: the name of an engine. If it is empty, the caller uses the default that --help names.
CLI::Option* add_id(CLI::App& app, std::string& id, const std::string& description);

/// `--metrics HOST:PORT`.
CLI::Option* add_metrics(CLI::App& app, std::string& address);

/// `--tls-cert FILE` and `--tls-key FILE` of a server.
void add_tls(CLI::App& app, std::string& certificate, std::string& key);

/// `--registry URI`, default $FO_REGISTRY, else the current value; and `--state-registry URI` for
/// `what`.
void add_registries(CLI::App& app, std::string& registry, std::string& state_registry,
                    const std::string& what);
/// Refuses "nan", which the ranges of CLI11 accept.
CLI::Validator not_nan();

/// `--worker-key FILE` and `--worker-ca FILE`, for requests to workers.
void add_worker_access(CLI::App& app, std::string& key_file, std::string& ca);
/// `--allow-workers NETWORK,...`.
CLI::Option* add_allowed_workers(CLI::App& app, std::string& networks);
/// `--admin PATH`, default $`variable`. If it is empty, the caller uses the `file` that --help
/// names.
CLI::Option* add_admin(CLI::App& app, std::string& path, const std::string& file,
                       const std::string& variable);

/// `--copy-threads N`, 0 for the default, and `--ring SIZE`.
void add_copy_options(CLI::App& app, std::size_t& threads, std::optional<base::ByteCount>& ring);

/// `--lock URI`, default $FAILOVER_LOCK_PATH, else the current value.
CLI::Option* add_lock(CLI::App& app, std::string& uri);
/// `--lock URI` for locks to hold: repeatable, with one value each.
CLI::Option* add_locks(CLI::App& app, std::vector<std::string>& uris);
/// `--kube-api URL`, for k8s: locks whose URI has no API server.
CLI::Option* add_kube_api(CLI::App& app, std::string& url);

/// `--status-fd N`: a descriptor for events as JSON lines.
CLI::Option* add_status_fd(CLI::App& app, int& fd);
/// `--ready-fd N`: a descriptor that gets a newline once `when`.
CLI::Option* add_ready_fd(CLI::App& app, int& fd, const std::string& when);

/// `--driver`, default $GMS_DRIVER.
CLI::Option* add_driver(CLI::App& app, std::string& driver);

/// `--device N`, 0 to 1023; the current value is shown as the default.
CLI::Option* add_device(CLI::App& app, base::DeviceOrdinal& device, const std::string& description);
/// A comma-separated list of device ordinals or "all" (an empty list), default "all".
CLI::Option* add_devices(CLI::App& app, std::vector<base::DeviceOrdinal>& devices,
                         const std::string& description);
/// A comma-separated list of tags.
CLI::Option* add_tags(CLI::App& app, std::vector<std::string>& tags,
                      const std::string& description);

}  // namespace fo::cli
