#include "ctl.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/text.h"
#include "cli/screen/output.h"
#include "http/message.h"
#include "os/log.h"
#include "route/admin.h"
#include "route/listing.h"

namespace fo::fo_route {
namespace {

struct Action {
  std::string_view name;
  std::string_view method;
  /// The names of its arguments, as the admin socket knows them.
  std::array<std::string_view, 3> parameters;
};

constexpr std::array<Action, 8> kActions{{{"state", "GET", {}},
                                          {"requests", "GET", {}},
                                          {"drain", "POST", {"id"}},
                                          {"undrain", "POST", {"id"}},
                                          {"weight", "POST", {"model", "card", "weight"}},
                                          {"level", "POST", {"level"}},
                                          {"kill", "POST", {"id"}},
                                          {"reload", "POST", {}}}};

const Action& find_action(const std::string& name) {
  const auto* const found = std::find_if(kActions.begin(), kActions.end(),
                                         [&](const Action& one) { return one.name == name; });
  if (found == kActions.end()) {
    throw base::Error(base::ExitStatus::kUsage, "ctl: unknown action " + base::quoted(name));
  }
  return *found;
}

// Returns the request target, for example "/drain?id=…".
std::string target_of(const Action& action, const std::vector<std::string>& words) {
  const auto expected = static_cast<std::size_t>(
      std::count_if(action.parameters.begin(), action.parameters.end(),
                    [](std::string_view parameter) { return !parameter.empty(); }));
  if (words.size() != expected + 1) {
    throw base::Error(base::ExitStatus::kUsage, "ctl " + std::string(action.name) + ": expected " +
                                                    base::counted(expected, "argument"));
  }
  std::string target = "/" + std::string(action.name);
  for (std::size_t i = 0; i < expected; ++i) {
    target += (i == 0 ? "?" : "&") + std::string(action.parameters.at(i)) + "=" +
              http::encode_parameter(words.at(i + 1));
  }
  return target;
}

}  // namespace

int ctl(const Options& options) {
  const Action& action = find_action(options.words.front());
  const std::string path = options.admin.empty() ? route::default_admin_path() : options.admin;
  const route::AdminAnswer answer =
      route::send_to_router(path, action.method, target_of(action, options.words), options.timeout);
  if (!answer.is_found) {
    os::log(os::LogLevel::kError, "{}", answer.text);
    return base::to_int(base::ExitStatus::kNo);
  }
  if (action.method == "GET") {
    cli::print(options.common.json ? answer.text + "\n"
                                   : route::to_table(action.name, answer.text));
  }
  return base::to_int(base::ExitStatus::kOk);
}

}  // namespace fo::fo_route
