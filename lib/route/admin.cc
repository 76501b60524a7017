#include "route/admin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/cannot_create.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/units.h"
#include "http/client.h"
#include "json/object.h"
#include "os/file.h"
#include "plan/degradation.h"
#include "route/settings.h"

namespace fo::route {
namespace {

using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;

constexpr char kSocketName[] = "/route.sock";

// The answer to an action: `is_found` is false if its object does not exist.
using Act = std::function<Response(const Request&)>;

awaitable<void> run_action(const Request& request, Reply& reply, Act act) {
  Response response;
  try {
    response = act(request);
  } catch (const Error& error) {
    response = http::error_response(409, error.what());
  }
  reply.answer(std::move(response));
  co_return;
}

http::Page post_page(std::string path, Act act) {
  return {"POST", std::move(path), [act = std::move(act)](const Request& request, Reply& reply) {
            return run_action(request, reply, act);
          }};
}

Response done() { return {200, "application/json", "{}", {}}; }

Response found(bool is_found, std::string_view object) {
  return is_found ? done() : http::error_response(404, object);
}

std::string text_of(const Request& request, std::string_view name) {
  return std::string(request.parameter(name).value_or(""));
}

Response set_weight(const AdminActions& actions, const Request& request) {
  const std::string text = text_of(request, "weight");
  char* end = nullptr;
  const double weight = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(weight >= 0 && weight <= kMaxWeight)) {
    return http::error_response(400, "weight " + base::quoted(text) + ": expected 0 to 1000000");
  }
  const std::string model = text_of(request, "model");
  return found(actions.weight(model, text_of(request, "card"), weight),
               "set of model " + base::quoted(model) + ": not there");
}

Response set_level(const AdminActions& actions, const Request& request) {
  const std::string text = text_of(request, "level");
  if (text == "auto") {
    actions.level(std::nullopt);
    return done();
  }
  const std::optional<std::uint64_t> level = base::parse_uint(text);
  if (!level || *level >= plan::kDegradationLevels.size()) {
    return http::error_response(400, "level " + base::quoted(text) + ": expected auto or 0 to 4");
  }
  actions.level(*level);
  return done();
}

}  // namespace

std::vector<http::Page> admin_pages(AdminActions given) {
  const auto actions = std::make_shared<const AdminActions>(std::move(given));
  const auto json = [](std::string body) {
    return Response{200, "application/json", std::move(body), {}};
  };
  const auto drain = [actions](bool is_drained) {
    return [actions, is_drained](const Request& request) {
      const std::string id = text_of(request, "id");
      return found(actions->drain(id, is_drained), "worker " + base::quoted(id) + ": unknown");
    };
  };
  return {
      http::get_page("/state", [actions, json] { return json(actions->state()); }),
      http::get_page("/requests", [actions, json] { return json(actions->requests()); }),
      http::get_page("/settings", [actions, json] { return json(actions->settings()); }),
      post_page("/drain", drain(true)),
      post_page("/undrain", drain(false)),
      post_page("/weight",
                [actions](const Request& request) { return set_weight(*actions, request); }),
      post_page("/level",
                [actions](const Request& request) { return set_level(*actions, request); }),
      post_page("/kill",
                [actions](const Request& request) {
                  const std::string id = text_of(request, "id");
                  return found(actions->kill(id), "request " + base::quoted(id) + ": unknown");
                }),
      post_page("/reload",
                [actions](const Request&) {
                  actions->reload();
                  return done();
                }),
  };
}

std::string default_admin_path() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool is_set = runtime != nullptr && *runtime != '\0' && ::geteuid() != 0;
  return (is_set ? std::string(runtime) : std::string("/run")) + "/fo" + kSocketName;
}

void prepare_admin_folder(const std::string& socket_path) {
  const std::size_t slash = socket_path.rfind('/');
  if (slash == socket_path.npos || slash == 0) return;
  const std::string folder = socket_path.substr(0, slash);
  const std::string what = "use folder " + base::quoted(folder);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) base::throw_cannot_create(errno, what);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) base::throw_errno(errno, what);
  // In a sticky folder, such as /tmp, another user cannot replace the socket.
  if ((status.st_mode & S_ISVTX) != 0) status.st_mode &= ~mode_t{S_IWGRP | S_IWOTH};
  if (const auto reason = os::find_other_writer(status)) {
    throw Error(ExitStatus::kNotPermitted, what + ": " + *reason);
  }
}

AdminAnswer ask_router(const std::string& socket_path, std::string_view method,
                       const std::string& target, base::Duration timeout) {
  const std::string what = "ask the router at " + base::quoted(socket_path);
  const http::Response response =
      http::fetch(method, "unix:" + socket_path + ":" + target, base::Deadline::after(timeout));
  if (response.status == 200) return {.is_found = true, .text = response.body};
  std::string message = "status " + std::to_string(response.status);
  if (const auto object = fo::json::find_object(response.body, base::kMiB)) {
    const auto* const error = fo::json::find(*object, "error");
    const auto* const text = error == nullptr ? nullptr : fo::json::find(*error, "message");
    if (text != nullptr && text->is_string()) message = text->get<std::string>();
  }
  if (response.status == 404) return {.is_found = false, .text = message};
  const bool is_usage = response.status == 400;
  throw Error(is_usage ? ExitStatus::kUsage : ExitStatus::kConfig, what + ": " + message);
}

}  // namespace fo::route
