#include "pod/pod_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/ascii.h"
#include "yaml/scalar.h"

namespace fo::pod {
namespace {


bool is_label_text(std::string_view text, std::size_t longest) {
  return !text.empty() && text.size() <= longest && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return text::is_lower(c) || text::is_digit(c) || c == '-'; });
}

bool is_label_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view domain = key.substr(0, slash);
    if (domain.empty() || domain.size() > 253 ||
        !std::all_of(domain.begin(), domain.end(), [](char c) {
          return text::is_lower(c) || text::is_digit(c) || c == '-' || c == '.';
        })) {
      return false;
    }
    key.remove_prefix(slash + 1);
  }
  return !key.empty() && is_label_value(key);
}

/// Kubernetes accepts any printable ASCII except "=".
bool is_env_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return c >= ' ' && c <= '~' && c != '='; });
}

/// Skips digits with at most one "."; returns the rest.
std::optional<std::string_view> past_decimal(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end);
  if (std::count(number.begin(), number.end(), '.') > 1 ||
      std::none_of(number.begin(), number.end(), text::is_digit)) {
    return std::nullopt;
  }
  return text.substr(end);
}

/// Names that must be unique.
class Names {
 public:
  /// Whether it is the first with that name.
  bool add(const std::string& name) { return names_.insert(name).second; }
  [[nodiscard]] bool has(const std::string& name) const { return names_.contains(name); }

 private:
  std::set<std::string> names_;
};

class PodChecker {
 public:
  explicit PodChecker(Findings& findings) : findings_(findings) {}

  void check(const PodParts& pod) {
    for (const std::string& name : pod.more_volumes) volumes_.add(name);
    for (const Located& volume : items_of(pod.volumes)) check_volume(volume);
    for (const Located& claim : items_of(pod.resource_claims)) check_claim(claim);
    const std::vector<std::string> none;
    for (const Located& container : pod.containers) {
      check_container(container, &container == &pod.containers.front() ? pod.more_ports : none);
    }
    check_claims(pod.more_claims);
    const Located& restarts = pod.restart_policy;
    if (restarts.node != nullptr && text_of(restarts) != "Always") {
      refuse(restarts, base::quoted(text_of(restarts)) + ": a dead engine must be restarted",
             "leave it out, or set it to Always");
    }
  }

  void check_labels(const Located& labels) {
    if (labels.node == nullptr) return;
    for (const yaml::Node::Member& member : labels.node->members()) {
      const Located label{&member.value, member_path(labels.path, member.key)};
      if (!is_label_key(member.key)) {
        add(findings_, {Severity::kError, member.position, label.path, "not a label name",
                        "at most 63 of letters, digits, -, _ and ., behind a domain and / where it "
                        "has one"});
      } else if (member.value.is_scalar() && !is_label_value(member.value.text())) {
        refuse(label, base::quoted(member.value.text()) + ": not a label value",
               "at most 63 of letters, digits, -, _ and .");
      }
    }
  }

  void check_env(const Located& env) {
    Names names;
    for (const Located& one : items_of(env)) {
      const Located name = one.member("name");
      if (name.node == nullptr || !is_env_name(text_of(name))) {
        refuse(name.node == nullptr ? one : name,
               name.node == nullptr ? "a variable without a name"
                                    : base::quoted(text_of(name)) + ": not a variable name",
               "printable characters, without =");
        continue;
      }
      if (!names.add(text_of(name))) {
        warn(name, base::quoted(text_of(name)) + ": set twice, the last one wins",
             "leave one of them out");
      }
      const Located value = one.member("value");
      if (!text_of(value).empty() && one.member("valueFrom").node != nullptr) {
        refuse(value, "value and valueFrom at once", "leave one of them out");
      }
    }
  }

  void check_probe(const Located& probe, const Located& ports,
                   const std::vector<std::string>& more_ports) {
    if (probe.node == nullptr || !probe.node->is_map()) return;
    int handlers = 0;
    for (const char* handler : {"exec", "grpc", "httpGet", "tcpSocket"}) {
      const Located how = probe.member(handler);
      if (how.node == nullptr) continue;
      ++handlers;
      if (handler != std::string_view("exec")) check_probe_port(how, ports, more_ports);
    }
    if (handlers != 1) {
      refuse(probe, handlers == 0 ? "a probe without a handler" : "a probe with two handlers",
             "set one of exec, grpc, httpGet and tcpSocket");
    }
  }

 private:
  void refuse(const Located& where, std::string reason, std::string remedy) {
    pod::refuse(findings_, where, std::move(reason), std::move(remedy));
  }
  void warn(const Located& where, std::string reason, std::string remedy) {
    pod::warn(findings_, where, std::move(reason), std::move(remedy));
  }

  void check_name(const Located& item, std::string_view what,
                  const std::function<bool(std::string_view)>& is_name, Names& names) {
    const Located name = item.member("name");
    if (name.node == nullptr) {
      refuse(item, fmt::format("a {} without a name", what), "set name");
    } else if (!is_name(text_of(name))) {
      refuse(name, fmt::format("{}: not a {} name", base::quoted(text_of(name)), what), kDnsLabelRule);
    } else if (!names.add(text_of(name))) {
      refuse(name, fmt::format("{}: two {}s with one name", base::quoted(text_of(name)), what),
             "rename one of them");
    }
  }

  void check_volume(const Located& volume) {
    check_name(volume, "volume", is_dns_label, volumes_);
    const std::vector<yaml::Node::Member>& members = volume.node->members();
    if (volume.node->is_map() &&
        std::none_of(members.begin(), members.end(), [](const yaml::Node::Member& member) {
          return member.key != "name" && !member.value.is_null();
        })) {
      refuse(volume, "a volume without a source", "set its source, such as emptyDir: {}");
    }
  }

  void check_claim(const Located& claim) {
    check_name(claim, "resource claim", is_dns_label, claims_);
    const Located name = claim.member("resourceClaimName");
    const Located of_template = claim.member("resourceClaimTemplateName");
    if ((name.node == nullptr) == (of_template.node == nullptr)) {
      refuse(claim, "a claim needs either a name or a template",
             "set either resourceClaimName or resourceClaimTemplateName");
    }
  }

  void check_container(const Located& container, const std::vector<std::string>& more_ports) {
    if (container.node == nullptr || !container.node->is_map()) return;
    check_name(container, "container", is_dns_label, containers_);
    if (text_of(container.member("image")).empty()) refuse(container, "no image", "set image");
    const Located ports = container.member("ports");
    check_ports(ports);
    check_env(container.member("env"));
    check_mounts(container.member("volumeMounts"));
    for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
      check_probe(container.member(probe), ports, more_ports);
    }
    check_claims(container.member("resources").member("claims"));
  }

  void check_claims(const Located& claims) {
    for (const Located& claim : items_of(claims)) {
      const Located name = claim.member("name");
      if (!claims_.has(text_of(name))) {
        refuse(name.node == nullptr ? claim : name,
               base::quoted(text_of(name)) + ": not a claim of the pod", "name one of resourceClaims");
      }
    }
  }

  void check_ports(const Located& ports) {
    Names names;
    Names numbers;
    for (const Located& port : items_of(ports)) {
      const Located number = port.member("containerPort");
      check_port_number(number.node == nullptr ? port : number, number);
      const Located host = port.member("hostPort");
      if (host.node != nullptr) check_port_number(host, host);
      const Located protocol = port.member("protocol");
      const std::string& by = text_of(protocol);
      if (protocol.node != nullptr && by != "TCP" && by != "UDP" && by != "SCTP") {
        refuse(protocol, base::quoted(by) + ": unknown protocol", "TCP, UDP or SCTP");
      }
      if (number.node != nullptr &&
          !numbers.add(text_of(number) + "/" + (by.empty() ? "TCP" : by))) {
        warn(number, base::quoted(text_of(number)) + ": the same port twice", "leave one of them out");
      }
      const Located name = port.member("name");
      if (name.node == nullptr) continue;
      if (!is_port_name(text_of(name))) {
        refuse(name, base::quoted(text_of(name)) + ": not a port name",
               "at most 15 of a-z, 0-9 and -, one letter at least, no - at either end or twice");
      } else if (!names.add(text_of(name))) {
        refuse(name, base::quoted(text_of(name)) + ": two ports with one name", "rename one of them");
      }
    }
  }

  void check_port_number(const Located& where, const Located& port) {
    if (port.node == nullptr) {
      refuse(where, "a port without a number", "set containerPort");
      return;
    }
    const std::optional<std::int64_t> number = yaml::as_integer(*port.node);
    // A value that is not a number has the wrong kind, which pod_schema reports.
    if (number && (*number < 1 || *number > 65535)) {
      refuse(where, fmt::format("{}: not a port", *number), "1 to 65535");
    }
  }

  void check_probe_port(const Located& handler, const Located& ports,
                        const std::vector<std::string>& more_ports) {
    const Located port = handler.member("port");
    if (port.node == nullptr) {
      refuse(handler, "missing port", "set port");
      return;
    }
    if (yaml::as_integer(*port.node)) {
      check_port_number(port, port);
      return;
    }
    const std::vector<Located> all = items_of(ports);
    const bool known =
        std::find(more_ports.begin(), more_ports.end(), text_of(port)) != more_ports.end() ||
        std::any_of(all.begin(), all.end(), [&](const Located& one) {
          const Located name = one.member("name");
          return name.node != nullptr && text_of(name) == text_of(port);
        });
    if (yaml::as_string(*port.node) && !known) {
      refuse(port, base::quoted(text_of(port)) + ": not a port of this container",
             "name one of its ports, or use a number");
    }
  }

  void check_mounts(const Located& mounts) {
    Names paths;
    for (const Located& mount : items_of(mounts)) {
      const Located name = mount.member("name");
      if (!volumes_.has(text_of(name))) {
        refuse(name.node == nullptr ? mount : name,
               base::quoted(text_of(name)) + ": not a volume of the pod", "name one of its volumes");
      }
      const Located path = mount.member("mountPath");
      if (text_of(path).empty()) {
        refuse(mount, "a mount without a path", "set mountPath");
      } else if (text_of(path).find(':') != std::string::npos) {
        refuse(path, base::quoted(text_of(path)) + ": a path with ':' in it", "choose another path");
      } else if (!paths.add(text_of(path))) {
        refuse(path, base::quoted(text_of(path)) + ": two mounts at one path", "leave one of them out");
      }
    }
  }

  Findings& findings_;
  Names containers_;
  Names volumes_;
  Names claims_;
};

}  // namespace

bool is_dns_label(std::string_view text) { return is_label_text(text, 63); }

bool is_dns_subdomain(std::string_view text) {
  if (text.size() > 253) return false;
  while (true) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    if (!is_dns_label(text.substr(0, dot))) return false;
    if (dot == text.size()) return true;
    text.remove_prefix(dot + 1);
  }
}

bool is_port_name(std::string_view text) {
  return is_label_text(text, 15) && std::any_of(text.begin(), text.end(), text::is_lower) &&
         text.find("--") == std::string_view::npos;
}

bool add_label(yaml::Node& labels, std::string_view key, const std::string& value) {
  if (!is_label_value(value)) return false;
  if (labels.find(key) == nullptr) labels.set(key, yaml::Node::string(value));
  return true;
}

bool is_label_value(std::string_view text) {
  return text.empty() || (text.size() <= 63 && text::is_letter_or_digit(text.front()) &&
                          text::is_letter_or_digit(text.back()) &&
                          std::all_of(text.begin(), text.end(), [](char c) {
                            return text::is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
                          }));
}

bool is_quantity(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const std::optional<std::string_view> unit = past_decimal(text);
  if (!unit) return false;
  if (unit->empty()) return true;
  if (unit->size() == 1) return std::string_view("numkMGTPE").find(*unit) != std::string_view::npos;
  if (unit->size() == 2 && unit->back() == 'i') {
    return std::string_view("KMGTPE").find(unit->front()) != std::string_view::npos;
  }
  if (unit->front() != 'e' && unit->front() != 'E') return false;
  std::string_view power = unit->substr(1);
  if (power.starts_with('+') || power.starts_with('-')) power.remove_prefix(1);
  return !power.empty() && power.size() <= 3 &&
         std::all_of(power.begin(), power.end(), text::is_digit);
}

void check_pod(const PodParts& pod, Findings& findings) { PodChecker(findings).check(pod); }

void check_labels(const Located& labels, Findings& findings) {
  PodChecker(findings).check_labels(labels);
}

void check_env(const Located& env, Findings& findings) { PodChecker(findings).check_env(env); }

void check_probe(const Located& probe, const Located& ports,
                 const std::vector<std::string>& more_ports, Findings& findings) {
  PodChecker(findings).check_probe(probe, ports, more_ports);
}

}  // namespace fo::pod
