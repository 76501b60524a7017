#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "cli/config/variables.h"
#include "text/ascii.h"

namespace fo::cli {
namespace {

constexpr const char* kDuration = "DURATION";
constexpr const char* kSize = "SIZE";

base::ByteCount read_size(const std::string& name, const std::string& text) {
  const std::optional<base::ByteCount> size = base::parse_size(text);
  if (!size) {
    throw CLI::ValidationError(name, "'" + text + "' is not a size such as 4GiB or 4096");
  }
  return *size;
}

// An option whose text `read` converts to a value, or rejects.
template <typename Read, typename Value>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, const std::string& description,
                        const char* type, Read read, Value& value) {
  return app
      .add_option_function<std::string>(
          name, [=, &value](const std::string& text) { value = read(name, text); }, description)
      ->type_name(type);
}

std::vector<std::string> split_list(const std::string& text) {
  const std::vector<std::string_view> parts = text::split(text, ',');
  return {parts.begin(), parts.end()};
}

// The tag is part of a file name. Returns an empty string or the reason, as CLI11's validators do.
std::string is_tag(const std::string& text) {
  const bool good = !text.empty() && text.find('/') == std::string::npos;
  return good ? std::string() : "'" + text + "' is not a tag: a word without '/'";
}

CLI::Option* describe_lock(CLI::Option* option, const std::string& uri) {
  return option->envname("FAILOVER_LOCK_PATH")->default_str(uri)->type_name("URI");
}

}  // namespace

CLI::Validator example_words(const std::vector<std::string>& words) {
  return {[](const std::string&) { return std::string(); }, CLI::detail::generate_set(words)};
}

base::Duration read_duration(const std::string& name, const std::string& text) {
  const std::optional<base::Duration> duration = base::parse_duration(text);
  if (duration) return *duration;
  const bool wants_unit = base::parse_duration(text + "s").has_value();
  throw CLI::ValidationError(
      name, wants_unit ? "'" + text + "': a duration needs a unit, for example " + text + "s"
                       : "'" + text + "' is not a duration such as 500ms, 30s or 2m");
}

CLI::Option* add_duration(CLI::App& app, const std::string& name, base::Duration& value,
                          const std::string& description) {
  return add_parsed(app, name, description, kDuration, read_duration, value)
      ->default_str(base::format_duration(value));
}

CLI::Option* add_duration(CLI::App& app, const std::string& name,
                          std::optional<base::Duration>& value, const std::string& description) {
  return add_parsed(app, name, description, kDuration, read_duration, value);
}

CLI::Option* add_positive_duration(CLI::App& app, const std::string& name, base::Duration& value,
                                   const std::string& description, base::Duration max) {
  const auto check = [max](const std::string& text) -> std::string {
    // add_duration() reports a text that is not a duration.
    const base::Duration duration = base::parse_duration(text).value_or(base::Duration(1));
    if (duration <= base::Duration::zero()) return "'" + text + "' is not above 0";
    return duration > max ? "'" + text + "' is over " + base::format_duration(max) : "";
  };
  return add_duration(app, name, value, description)->check(CLI::Validator(check, ""));
}

CLI::Option* add_number(CLI::App& app, const std::string& name,
                        const std::function<void(std::uint64_t number)>& set,
                        const std::string& description, std::uint64_t min, std::uint64_t max) {
  const auto read = [=](const std::string& text) {
    const std::optional<std::uint64_t> number = base::parse_uint(text);
    if (number && *number >= min && *number <= max) return set(*number);
    std::string reason = "'" + text + "' is not a whole number";
    if (max < std::numeric_limits<std::uint64_t>::max()) {
      reason += " from " + std::to_string(min) + " to " + std::to_string(max);
    } else if (min > 0) {
      reason += " of at least " + std::to_string(min);
    }
    throw CLI::ValidationError(name, reason);
  };
  return app.add_option_function<std::string>(name, read, description)->type_name("N");
}

std::string size_text(base::ByteCount size) {
  std::string text = base::format_size(size);
  std::erase(text, ' ');
  return base::parse_size(text) == size ? text : std::to_string(size);
}

CLI::Option* add_size(CLI::App& app, const std::string& name, base::ByteCount& value,
                      const std::string& description) {
  return add_parsed(app, name, description, kSize, read_size, value)->default_str(size_text(value));
}

CLI::Option* add_size(CLI::App& app, const std::string& name, std::optional<base::ByteCount>& value,
                      const std::string& description) {
  return add_parsed(app, name, description, kSize, read_size, value);
}

CLI::Option* add_text(CLI::App& app, const std::string& name, std::string& value,
                      const std::string& description, const std::string& type) {
  return app.add_option(name, value, description)->type_name(type);
}

CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                      const std::string& description, const std::string& type) {
  return app.add_option(name, values, description)->expected(1)->take_all()->type_name(type);
}

CLI::Option* add_socket_dir(CLI::App& app, std::string& socket_dir) {
  return add_text(app, "--socket-dir", socket_dir,
                  "folder of the GMS sockets (default: $TMPDIR, else /tmp)", "DIR")
      ->envname("GMS_SOCKET_DIR");
}

CLI::Option* add_server_uid(CLI::App& app, std::optional<uid_t>& server_uid) {
  return app
      .add_option_function<std::string>(
          "--server-uid",
          [&server_uid](const std::string& text) {
            server_uid = base::parse_id(text);
            if (!server_uid) {
              throw CLI::ValidationError("--server-uid", "'" + text + "' is not a user id");
            }
          },
          "also accept a server of this user")
      ->envname("GMS_SERVER_UID")
      ->type_name("UID");
}

CLI::Option* add_id(CLI::App& app, std::string& id, const std::string& description) {
  return add_text(app, "--id", id, description + " (default: engine-$ENGINE_ID)", "ID");
}

CLI::Option* add_metrics(CLI::App& app, std::string& address) {
  return add_text(app, "--metrics", address, "serve Prometheus metrics there", "HOST:PORT");
}

void add_tls(CLI::App& app, std::string& certificate, std::string& key) {
  add_text(app, "--tls-cert", certificate, "serve TLS with this certificate and its key (PEM)",
           "FILE");
  add_text(app, "--tls-key", key, "", "FILE");
}

void add_registries(CLI::App& app, std::string& registry, std::string& state_registry,
                    const std::string& what) {
  add_text(app, "--registry", registry, "the registry's URI", "URI")
      ->envname("FO_REGISTRY")
      ->capture_default_str();
  add_text(app, "--state-registry", state_registry,
           "for " + what + ", if the workers are read-only", "URI")
      ->envname("FO_STATE_REGISTRY");
  add_variables(app, {"KUBERNETES_SERVICE_*"});
}

CLI::Validator not_nan() {
  const auto refuse = [](const std::string& text) {
    double value = 0;
    const bool is_nan = CLI::detail::lexical_cast(text, value) && std::isnan(value);
    return is_nan ? "'" + text + "' is not a number" : std::string();
  };
  return CLI::Validator(refuse, "");
}

void add_worker_access(CLI::App& app, std::string& key_file, std::string& ca) {
  add_text(app, "--worker-key", key_file, "the engines' API key", "FILE");
  add_text(app, "--worker-ca", ca, "the authority of the engines' certificates", "FILE");
}

CLI::Option* add_allowed_workers(CLI::App& app, std::string& networks) {
  return add_text(app, "--allow-workers", networks,
                  "networks that workers may be in (default: loopback and private ones)",
                  "NETWORK,...");
}

CLI::Option* add_admin(CLI::App& app, std::string& path, const std::string& file,
                       const std::string& variable) {
  add_variables(app, {"XDG_RUNTIME_DIR"});
  return add_text(app, "--admin", path, "admin socket (default: $XDG_RUNTIME_DIR/fo/" + file + ")",
                  "PATH")
      ->envname(variable);
}

void add_copy_options(CLI::App& app, std::size_t& threads, std::optional<base::ByteCount>& ring) {
  add_number(app, "--copy-threads", threads, "default: one per CPU, at most 8", 1, 256)
      ->default_str("");
  add_size(app, "--ring", ring, "pinned staging memory (default: 64MiB, simulated: 0)");
}

void add_endpoint(CLI::App& app, EndpointOptions& endpoint, DeviceOfSocket device_of_socket) {
  CLI::Option* socket =
      app.add_option("--socket", endpoint.socket, "socket of the GMS")->type_name("PATH");
  add_socket_dir(app, endpoint.socket_dir);
  CLI::Option* device = add_device(app, endpoint.device, "device of the GMS");
  CLI::Option* tag = app.add_option("--tag", endpoint.tag, "tag of the GMS")
                         ->check(is_tag)
                         ->capture_default_str()
                         ->type_name("T");
  socket->excludes(tag);
  if (device_of_socket == DeviceOfSocket::kRefused) socket->excludes(device);
  add_server_uid(app, endpoint.server_uid);
}

CLI::Option* add_remap_timeout(CLI::App& app, const std::string& name, base::Duration& value,
                               const std::string& description) {
  return add_duration(app, name, value, description)->envname("GMS_REMAP_TIMEOUT_MS");
}

CLI::Option* add_lock(CLI::App& app, std::string& uri) {
  return describe_lock(app.add_option("--lock", uri, "the lock to query"), uri);
}

CLI::Option* add_locks(CLI::App& app, std::vector<std::string>& uris) {
  return describe_lock(app.add_option("--lock", uris, "a lock; repeatable"), uris.front())
      ->allow_extra_args(false);
}

CLI::Option* add_kube_api(CLI::App& app, std::string& url) {
  return add_text(app, "--kube-api", url, "the API server of k8s: (default: the pod's cluster)",
                  "URL")
      ->envname("FAILOVER_KUBE_API");
}

CLI::Option* add_driver(CLI::App& app, std::string& driver) {
  return app.add_option("--driver", driver, "auto, cuda, sim, or a path to a libcuda.so.1")
      ->envname("GMS_DRIVER")
      ->default_str("auto")
      ->check(example_words({"auto", "cuda", "sim"}))
      ->type_name("DRIVER");
}

CLI::Option* add_status_fd(CLI::App& app, int& fd) {
  return add_number(app, "--status-fd", fd, "write events there as JSON lines", 0, 1 << 30)
      ->default_str("");
}

CLI::Option* add_ready_fd(CLI::App& app, int& fd, const std::string& when) {
  return add_number(app, "--ready-fd", fd, "write a newline here once " + when, 3, 1 << 20)
      ->default_str("");
}

CLI::Option* add_device(CLI::App& app, base::DeviceOrdinal& device,
                        const std::string& description) {
  const auto set = [&device](std::uint64_t number) {
    device = base::DeviceOrdinal(static_cast<int>(number));
  };
  return add_number(app, "--device", set, description, 0, 1023)
      ->default_str(std::to_string(device.value()));
}

CLI::Option* add_devices(CLI::App& app, std::vector<base::DeviceOrdinal>& devices,
                         const std::string& description) {
  return app
      .add_option_function<std::string>(
          "--devices",
          [&devices](const std::string& text) {
            devices.clear();
            if (text == "all") return;
            for (const std::string& part : split_list(text)) {
              const std::optional<std::uint64_t> number = base::parse_uint(part);
              if (!number || *number > 1023) {
                throw CLI::ValidationError("--devices",
                                           "'" + part + "' is not a device number, 0 to 1023");
              }
              const base::DeviceOrdinal device(static_cast<int>(*number));
              if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
                throw CLI::ValidationError("--devices", "device " + part + " is named twice");
              }
              devices.push_back(device);
            }
          },
          description)
      ->check(example_words({"all"}))
      ->type_name("all|N,...")
      ->default_str("all");
}

CLI::Option* add_tags(CLI::App& app, std::vector<std::string>& tags,
                      const std::string& description) {
  return app
      .add_option_function<std::string>(
          "--tags",
          [&tags](const std::string& text) {
            tags = split_list(text);
            for (const std::string& tag : tags) {
              if (const std::string reason = is_tag(tag); !reason.empty()) {
                throw CLI::ValidationError("--tags", reason);
              }
              if (std::count(tags.begin(), tags.end(), tag) > 1) {
                throw CLI::ValidationError("--tags", "tag '" + tag + "' is named twice");
              }
            }
          },
          description)
      ->type_name("T,...")
      ->default_str(CLI::detail::join(tags));
}

}  // namespace fo::cli
